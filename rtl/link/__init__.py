"""The ends of the links: departures and arrivals."""
