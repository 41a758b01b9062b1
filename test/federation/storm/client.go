package storm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// hang is when a request counts as one that never ends.
const hang = time.Minute

// client asks a server, once: client-go would try again.
type client struct {
	http   *http.Client
	host   string
	record *record // nil: nothing is noted
}

func newClient(kubeconfig string, r *record) (*client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	h, err := rest.HTTPClientFor(config)
	return &client{h, config.Host, r}, err
}

// document is JSON.
type document = map[string]any

// answer is what a server said, or the front for it.
type answer struct {
	status int // 0: there is none
	body   document
	err    error
	well   bool // the server was not hurt meanwhile
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprint(a.status, " ", a.body["message"])
}

// do sends a request, as one for a server behind, or the front itself.
func (c *client) do(ctx context.Context, server, method, path string, body any) answer {
	t := c.record.begin(server)
	limited, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	a, failure := answer{}, ""
	status, content, err := c.send(limited, method, path, body)
	if err == nil {
		err = json.Unmarshal(content, &a.body)
	}
	switch {
	case ctx.Err() != nil:
		return answer{err: ctx.Err()}
	case err != nil:
		a.err, failure = err, fmt.Sprint(err, ": ", string(content))
	default:
		a.status = status
		if status >= 500 || status == http.StatusTooManyRequests {
			failure = a.String()
		}
	}
	a.well = c.record.finish(t, server+": "+method+" "+path, failure)
	return a
}

func (c *client) send(ctx context.Context, method, path string, body any) (status int, content []byte, err error) {
	response, err := c.open(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	content, err = io.ReadAll(response.Body)
	return response.StatusCode, content, err
}

func (c *client) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	content := []byte{}
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return c.http.Do(r)
}

// must is for what prepares a plane: only success will do.
func (c *client) must(ctx context.Context, method, path string, body any) (document, error) {
	status, content, err := c.send(ctx, method, path, body)
	if err == nil && (status < 200 || status > 299) {
		err = fmt.Errorf("%s %s: %d: %s", method, path, status, content)
	}
	var answer document
	if err == nil {
		err = json.Unmarshal(content, &answer)
	}
	return answer, err
}

// available tells whether the APIService of a group says so.
func (c *client) available(ctx context.Context, g *group) error {
	status, content, err := c.send(ctx, http.MethodGet, apiServices+"/"+g.apiService(), nil)
	if err != nil {
		return err
	}
	var service struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(content, &service); err != nil {
		return err
	}
	for _, condition := range service.Status.Conditions {
		if condition.Type == "Available" && condition.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("APIService %s: %d %v", g.apiService(), status, service.Status.Conditions)
}

// usage is what a process takes.
type usage struct {
	memory     int // MiB
	goroutines int
}

func (u usage) String() string {
	return fmt.Sprintf("%d MiB, %d goroutines", u.memory, u.goroutines)
}

// usage of the front. Where there is no /proc, its memory is not known.
func (c *client) usage(ctx context.Context, front *behind.Front) (usage, error) {
	u := usage{}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", front.PID())); err == nil {
		kib, _ := strconv.Atoi(strings.TrimSuffix(field(text, "VmRSS:"), " kB"))
		u.memory = kib >> 10
	}
	_, text, err := c.send(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return u, err
	}
	u.goroutines, err = strconv.Atoi(field(text, "go_goroutines "))
	return u, err
}

// field is the rest of the line that begins with a name.
func field(text []byte, name string) string {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), name); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
