// Package streams reads logs, opens terminals, copies files and forwards ports of pods that
// are Go functions, with the real kubectl.
package streams
