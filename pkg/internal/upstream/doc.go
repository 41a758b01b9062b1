// Package upstream holds the work-arounds for warts of the modules we build on:
// process-wide state, exits, signals that are not exported, panics and 500s that
// a client can cause. One file per wart, each with a link to the line it works
// around.
package upstream
