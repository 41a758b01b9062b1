package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// patience is how long anything may take before it counts as hanging. It is far
// from what anything takes.
const patience = 2 * time.Minute

// logs holds what the server and the libraries below it log.
var logs = &logBuffer{}

func TestMain(m *testing.M) {
	klog.SetLoggerWithOptions(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))), klog.ContextualLogger(true))
	log.SetOutput(logs)
	os.Exit(m.Run())
}

type logBuffer struct {
	mu     sync.Mutex
	bytes  bytes.Buffer
	panics []string
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes.Contains(p, []byte("Observed a panic")) || bytes.Contains(p, []byte("panic serving")) || bytes.Contains(p, []byte("panic'd")) {
		b.panics = append(b.panics, string(p))
	}
	if b.bytes.Len() > 16<<20 {
		b.bytes.Reset()
	}
	return b.bytes.Write(p)
}

// noPanic fails the test when the log speaks of a panic.
func (b *logBuffer) noPanic(tb testing.TB) {
	tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.panics {
		tb.Errorf("the server panicked: %s", p)
	}
	b.panics = nil
}

// door is one way to a server.
type door struct {
	client *http.Client
	base   string
}

// world is a running server with the objects that must survive everything.
type world struct {
	server *controlplane.Server
	doors  map[string]door
}

// start runs a server on memory, with further parts, and makes the objects that
// must survive.
func start(tb testing.TB, parts ...controlplane.Part) *world {
	tb.Helper()
	kubeconfig := filepath.Join(tb.TempDir(), "admin.kubeconfig")
	s, err := controlplane.New("hostile").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: kubeconfig},
		core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, garden(),
		crd.Definitions{}, aggregator.APIServices{}, controlplane.Parts(parts),
	).Build()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		tb.Fatalf("run: %v", err)
	case <-time.After(patience):
		tb.Fatal("the server is not ready")
	}
	outside, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		tb.Fatal(err)
	}
	w := &world{server: s, doors: map[string]door{
		"tls":        newDoor(tb, outside),
		"in-process": newDoor(tb, s.ClientConfig()),
	}}
	w.furnish(tb)
	return w
}

func newDoor(tb testing.TB, c *rest.Config) door {
	tb.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		tb.Fatal(err)
	}
	base := c.Host
	if !strings.Contains(base, "://") {
		base = "https://" + base
	}
	tb.Cleanup(client.CloseIdleConnections)
	return door{client: client, base: base}
}

// furnish creates the objects that the rows act on.
func (w *world) furnish(tb testing.TB) {
	tb.Helper()
	objects := []struct{ path, body string }{{namespaces.collection, namespaces.object("hostile", "", "")}}
	for _, k := range kinds() {
		if k.plural != namespaces.plural {
			objects = append(objects, struct{ path, body string }{k.collection, k.object(k.kept, "", "")})
		}
	}
	objects = append(objects, struct{ path, body string }{
		configMaps.collection, configMaps.object("frozen", "", `,"immutable":true`),
	})
	d := w.doors["in-process"]
	for _, o := range objects {
		a, err := d.send(context.Background(), request{method: "POST", path: o.path, body: o.body})
		if err != nil || a.code != http.StatusCreated {
			tb.Fatalf("create below %s: %d %s %v", o.path, a.code, a.body, err)
		}
		if o.path == definitions.collection {
			w.awaitServed(tb, gourds.collection)
			w.awaitWatched(tb, gourds.collection)
			w.awaitEstablished(tb, definitions.one())
		}
	}
}

// awaitServed waits until a collection is served.
func (w *world) awaitServed(tb testing.TB, path string) {
	tb.Helper()
	w.await(tb, request{method: "GET", path: path}, func(answer) bool { return true })
}

// awaitWatched waits until a collection can be watched: until the watch cache of a
// new resource is filled, clients are told to try again.
func (w *world) awaitWatched(tb testing.TB, path string) {
	tb.Helper()
	w.await(tb, request{method: "GET", path: path + "?watch=1", endless: true}, func(answer) bool { return true })
}

// awaitEstablished waits until a CRD is. Its objects are served before, while the
// server still has to write its status for the last time.
func (w *world) awaitEstablished(tb testing.TB, path string) {
	tb.Helper()
	w.await(tb, request{method: "GET", path: path}, func(a answer) bool {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal([]byte(a.body), &crd); err != nil {
			tb.Fatalf("GET %s: %v", path, err)
		}
		return apihelpers.IsCRDConditionTrue(&crd, apiextensionsv1.Established)
	})
}

// await waits until a request is answered, and so.
func (w *world) await(tb testing.TB, r request, is func(answer) bool) {
	tb.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		a, err := w.doors["in-process"].send(context.Background(), r)
		if err == nil && a.code == http.StatusOK && is(a) {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s %s: %d %s %v", r.method, r.path, a.code, a.body, err)
		}
	}
}

// request is one raw request.
type request struct {
	method, path string
	contentType  string
	accept       string
	body         string
	user         string // whom the administrator acts as
	endless      bool   // only the header of the answer is read
}

// answer is what came back.
type answer struct {
	code     int
	header   http.Header
	body     string
	warnings []string
}

// send sends a raw request; a JSON body is the default.
func (d door) send(ctx context.Context, r request) (answer, error) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, d.base+r.path, body)
	if err != nil {
		return answer{}, errors.Join(errNotARequest, err)
	}
	switch r.contentType {
	case "":
		if r.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
	case noContentType:
	default:
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.user != "" {
		req.Header.Set("Impersonate-User", r.user)
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{code: resp.StatusCode, header: resp.Header, warnings: resp.Header.Values("Warning")}
	if r.endless && a.code == http.StatusOK {
		return a, nil
	}
	read, err := io.ReadAll(resp.Body)
	a.body = string(read)
	return a, err
}

const noContentType = "none"

// errNotARequest says that Go's client refuses to send what was asked for.
var errNotARequest = errors.New("not a request")

// snapshot is every object of every kind, by path.
func (w *world) snapshot(tb testing.TB) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for _, k := range kinds() {
		a, err := w.doors["in-process"].send(context.Background(), request{method: "GET", path: k.collection})
		if err != nil || a.code != http.StatusOK {
			tb.Fatalf("GET %s: %d %s %v", k.collection, a.code, a.body, err)
		}
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
			}
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			tb.Fatalf("GET %s: %v", k.collection, err)
		}
		for _, i := range list.Items {
			path := k.collection + "/" + i.Metadata.Name
			one, err := w.doors["tls"].send(context.Background(), request{method: "GET", path: path})
			if err != nil || one.code != http.StatusOK {
				tb.Fatalf("GET %s: %d %s %v", path, one.code, one.body, err)
			}
			all[path] = one.body
		}
	}
	return all
}

// placeholders stand in paths and bodies for what only a running server knows.
var placeholders = regexp.MustCompile(`\{rv:([^}]*)\}`)

// fill replaces {rv:PATH} by the resource version of the object at the path.
func (w *world) fill(tb testing.TB, s string) string {
	tb.Helper()
	return placeholders.ReplaceAllStringFunc(s, func(m string) string {
		path := placeholders.FindStringSubmatch(m)[1]
		a, err := w.doors["in-process"].send(context.Background(), request{method: "GET", path: path})
		var obj struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := errors.Join(err, json.Unmarshal([]byte(a.body), &obj)); err != nil {
			tb.Fatalf("GET %s: %v", path, err)
		}
		return obj.Metadata.ResourceVersion
	})
}

func nested(open, middle, end string, depth int) string {
	return strings.Repeat(open, depth) + middle + strings.Repeat(end, depth)
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }
