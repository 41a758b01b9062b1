// Package planetest tests controllers of controller-runtime on planes of
// pkg/planetest, as a project that uses both does.
package planetest
