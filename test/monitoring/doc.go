// Package monitoring runs the queries of config/monitoring with Prometheus'
// engine on what a server answers at /metrics.
//
// Two servers are read twice each, before and after the same traffic: one where
// all is well, and one where much is wrong. What they answered is continued for an hour:
// counters go on as between the two readings. So every query of the dashboard has
// an answer, no alert fires for the first server, and each fires when the figures
// that it is about are changed.
package monitoring
