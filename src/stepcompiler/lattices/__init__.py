"""Steps of many equal sites as the program of one site and loops over the sites."""
