// Package clients tests that the clients people write controllers with,
// client-go and controller-runtime, work with a server as with any cluster, on
// every storage that runs inside the process.
package clients
