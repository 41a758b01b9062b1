// Package upstream holds the work-arounds for flaws of the modules we build on:
// process-wide state, exits, signals that are not exported, panics and 500s that a
// client can cause. One file per flaw, each with a link to the line it works
// around.
package upstream
