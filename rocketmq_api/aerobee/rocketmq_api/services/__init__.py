"""MessagingService as every node serves it: handlers translate, and `ports` defines what they
need."""
