// Package chart checks the Helm chart of sailplane with helm itself: what it renders,
// what becomes of it in a cluster, which is a sailplane, and that the binary
// understands what the pod gives it.
package chart
