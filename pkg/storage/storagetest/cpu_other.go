//go:build !unix

package storagetest

import "time"

// cpuTime is unknown here.
func cpuTime() time.Duration { return 0 }
