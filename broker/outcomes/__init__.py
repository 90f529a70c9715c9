"""When requests are answered: the one scheduler, and the conditions it knows. It knows neither requests nor wire."""
