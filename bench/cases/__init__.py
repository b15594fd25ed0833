"""What is measured: each part of a run has its module, with what it needs beside it."""
