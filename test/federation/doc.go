// Package federation has other API servers behind a server, as their projects publish them:
// sample-apiserver and metrics-server, asked by kubectl and a controller, and killed, frozen,
// moved, given a wrong certificate and made slow.
package federation
