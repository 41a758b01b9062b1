//go:build unix

package databases

import (
	"os"
	"os/exec"
	"testing"
)

func TestTmpCopy(t *testing.T) {
	for _, e := range engines() {
		server := e.start(t)
		for range 1 {
			c := exec.Command("/usr/bin/env", "bash", "-c", `python3 /tmp/w/rss.py /tmp/w/bin/sailplane storage copy --from sqlite:/tmp/w/gen/state.db --to "$0"`, server.URL("c"))
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			if err := c.Run(); err != nil {
				t.Error(err)
			}
		}
	}
}
