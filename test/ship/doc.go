// Package ship checks what sailplane is delivered with: the container image of
// `make image`, the unit for systemd, and what docs/deploying.md says of them.
package ship
