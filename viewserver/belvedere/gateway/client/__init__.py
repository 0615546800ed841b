"""The client of the HTTP API: `belvedere.connect("https://…")`. It knows neither engine nor server framework."""
