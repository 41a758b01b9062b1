// Package server makes a server of the library from a configuration. [Builder] is
// all that "sailplane serve" and the kube-apiserver of "sailplane envtest" share:
// what one of them can do, the other can.
package server
