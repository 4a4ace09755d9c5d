"""The explorer's HTML file, written from a pool; the page itself is `radmoe.explorer`'s."""
