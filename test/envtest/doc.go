// Package envtest runs the envtest of controller-runtime, as it is, with the
// binaries that "sailplane envtest install" writes.
package envtest
