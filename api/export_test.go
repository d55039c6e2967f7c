package api

// NewWithRoutes makes a server with another route table, for tests of the ground that the real one stands on.
func NewWithRoutes(cfg Config, table []Route) *Server {
	return newServer(cfg.withDefaults(), table)
}
