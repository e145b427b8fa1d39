"""MessagingService as every node serves it: handlers translate, `ports` says what they need."""
