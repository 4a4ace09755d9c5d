"""What reads answers. Nothing that selects may import this room."""
