-- Of a claim that nobody has made before, the asker knows everything but the time.
return fresh and now or {answer, now, whole}
