"""What commands do; step B empties this folder."""
