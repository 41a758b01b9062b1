package streams

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestStop: a server that stops ends what streams, with its clients and functions.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"WebSocket", "SPDY"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			p := serve(t)
			var commands []*exec.Cmd
			for _, args := range [][]string{{"exec", "-i", "web", "--", "sh", "-c", "echo begun; cat"}, {"logs", "-f", "web"}} {
				c := p.kubectl(t, transport, args...)
				in, err := c.StdinPipe() // stays open
				must(t, err)
				t.Cleanup(func() { _ = in.Close() })
				out, err := c.StdoutPipe()
				must(t, err)
				must(t, c.Start())
				if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
					t.Fatalf("%s says %q: %v", args[0], line, err)
				}
				go func() { _, _ = io.Copy(io.Discard, out) }()
				commands = append(commands, c)
			}
			p.stop()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for _, c := range commands {
					_ = c.Wait() // how they end is theirs
				}
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("kubectl does not end with the server")
			}
		})
	}
}

// TestProxied: what a proxy hands on is not looked at, and errors stay as they are.
func TestProxied(t *testing.T) {
	t.Parallel()
	p := serve(t)
	client, err := rest.HTTPClientFor(p.config)
	must(t, err)
	deep := strings.Repeat("[", 8<<20) // no body of an object may be that large, or nest that deep
	for path, want := range map[string]string{"/a": "200 8388608 bytes hello /a", "/fail": "500 8388608 bytes hello /fail"} {
		resp, err := client.Post(p.config.Host+"/api/v1/namespaces/default/pods/web/proxy"+path, "application/json", strings.NewReader(deep))
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		must(t, resp.Body.Close())
		if got := fmt.Sprint(resp.StatusCode, " ", string(body)); got != want {
			t.Errorf("%s: got %.200q, want %q", path, got, want)
		}
	}
	resp, err := client.Get(p.config.Host + "/api/v1/namespaces/default/pods/none/proxy/a")
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("the proxy of no pod: %s", resp.Status)
	}
}
