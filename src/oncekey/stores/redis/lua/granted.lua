-- Of a claim that nobody has made before, the asker knows everything but the time. An answer with a
-- record is one string: a table of three would cost the server a write of its own for each claim.
return fresh and now or struct.pack(ANSWER, answer, now) .. whole
