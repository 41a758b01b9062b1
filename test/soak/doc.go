// Package soak has clients work at random for a while, and compares what is
// left with a model.
package soak
