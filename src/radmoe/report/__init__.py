"""What people look at: pictures of problems and tables of results."""
