"""What the inbox and the outbox do on the connection of the user, one module for each driver."""
