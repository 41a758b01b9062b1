// Package upstream holds the work-arounds for what k8s.io modules and others keep
// in process-wide state or end with an exit: one file per wart, each with a
// link to the line it works around.
package upstream
