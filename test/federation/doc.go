// Package federation has other API servers behind a server, as their projects publish them:
// sample-apiserver and metrics-server, asked by kubectl, and killed, frozen, moved and given a
// wrong certificate.
package federation
