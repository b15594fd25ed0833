"""Records in MariaDB 10.6 or newer or MySQL 8 or newer, shared by any number of machines."""
