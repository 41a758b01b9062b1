package monitoring

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/test/program"
)

// patience is how long is waited for what takes moments, on a machine busy with all tests at once.
const patience = 2 * time.Minute

// sailplane is where TestMain has put the binary.
var sailplane string

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		sailplane, err = program.Sailplane(ctx, dir)
		return err
	}}.Run())
}

// server is a sailplane that runs, and its administrator.
type server struct {
	t      *testing.T
	url    string
	client *http.Client
	plain  *http.Client // without credentials
}

// start runs a server until the test ends. Its metrics are of its process alone.
func start(t *testing.T, flags ...string) *server {
	t.Helper()
	return startIn(t, t.TempDir(), flags...)
}

// startIn is start, with what is in a folder.
func startIn(t *testing.T, dir string, flags ...string) *server {
	t.Helper()
	cmd := exec.Command(sailplane, append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", "data"}, flags...)...)
	cmd.Dir = dir
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the server printed at last:\n%s", log.Bytes()[max(0, log.Len()-4096):])
		}
	})
	kubeconfig := filepath.Join(dir, "data", "admin.kubeconfig") // written when it is ready
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if config, err := clientcmd.BuildConfigFromFlags("", kubeconfig); err == nil {
			return connect(t, config)
		}
		select {
		case <-ended:
			t.Fatalf("the server ended:\n%s", &log)
		default:
		}
		if time.Since(begun) > patience {
			t.Fatalf("the server has written no kubeconfig in %v", patience)
		}
	}
}

func connect(t *testing.T, config *rest.Config) *server {
	t.Helper()
	certified, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		t: t, url: config.Host,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: certified}},
		plain:  &http.Client{Transport: &http.Transport{TLSClientConfig: plain}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	t.Cleanup(s.plain.CloseIdleConnections)
	return s
}

// send sends a request with a token, or as the administrator when that is empty.
func (s *server) send(ctx context.Context, token, method, path, body string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	client := s.client
	if token != "" {
		client = s.plain
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// do sends a request as the administrator and wants a code.
func (s *server) do(code int, method, path, body string) []byte {
	s.t.Helper()
	got, text, err := s.send(s.t.Context(), "", method, path, body)
	if err != nil || got != code {
		s.t.Fatalf("%s %s: %d, want %d: %v\n%s", method, path, got, code, err, text)
	}
	return text
}

// eventually sends a request as the administrator until it has the code: some
// things are followed a moment after they were written.
func (s *server) eventually(code int, method, path, body string) {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		got, text, err := s.send(s.t.Context(), "", method, path, body)
		if err == nil && got == code {
			return
		}
		if err != nil || time.Since(begun) > patience {
			s.t.Fatalf("%s %s: %d, want %d: %v\n%s", method, path, got, code, err, text)
		}
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func configMap(name, label string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"seen":%q}}}`, name, label)
}

// ordinary is what clients of a server without troubles do.
func (s *server) ordinary(round int) {
	s.t.Helper()
	s.client.CloseIdleConnections() // certificates are looked at when somebody connects
	watch, stop := context.WithCancel(s.t.Context())
	defer stop()
	r, err := http.NewRequestWithContext(watch, http.MethodGet, s.url+configMaps+"?watch=1&resourceVersion=0", http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	events, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer events.Body.Close()
	for i := range 10 {
		name := fmt.Sprintf("ordinary-%d-%d", round, i)
		s.do(http.StatusCreated, http.MethodPost, configMaps, configMap(name, "well"))
		s.do(http.StatusConflict, http.MethodPost, configMaps, configMap(name, "well"))
		s.do(http.StatusOK, http.MethodGet, configMaps+"/"+name, "")
	}
	s.do(http.StatusOK, http.MethodGet, "/api/v1/configmaps?limit=3", "")
	s.do(http.StatusNotFound, http.MethodGet, configMaps+"/nothing", "")
	if code, text, err := s.send(s.t.Context(), "wrong", http.MethodGet, configMaps, ""); err != nil || code != http.StatusUnauthorized {
		s.t.Fatalf("a wrong token: %d, %v\n%s", code, err, text)
	}
	for decoder, seen := json.NewDecoder(events.Body), 0; seen < 10; seen++ {
		var event struct{ Type string }
		if err := decoder.Decode(&event); err != nil {
			s.t.Fatalf("the watch ends after %d events: %v", seen, err)
		}
	}
}

// webhook configures a validating webhook for ConfigMaps with a label.
func (s *server) webhook(name, url string, ca []byte, policy string) {
	s.t.Helper()
	s.do(http.StatusCreated, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{
		"metadata": {"name": %q},
		"webhooks": [{
			"name": "%[1]s.example.com", "clientConfig": {"url": %q, "caBundle": %q}, "failurePolicy": %q,
			"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
			"objectSelector": {"matchLabels": {"seen": %[1]q}},
			"sideEffects": "None", "admissionReviewVersions": ["v1"]
		}]
	}`, name, url, base64.StdEncoding.EncodeToString(ca), policy))
}

// answering is a webhook that allows everything but objects named refused.
func answering(t *testing.T) (url string, ca []byte) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct{ UID, Name string }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":%t}}`,
			review.Request.UID, review.Request.Name != "refused")
	}))
	t.Cleanup(s.Close)
	return s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// nowhere is where nothing answers.
const nowhere = "https://127.0.0.1:1/"

// newborn is a server that nobody has asked for anything but its metrics.
func newborn(t *testing.T) [2]reading {
	t.Helper()
	m := start(t).metrics()
	return [2]reading{m, m}
}

// neglected is a folder for a server whose last backup was taken two days ago.
func neglected(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s, err := controlplane.New("neglected").Storage(etcd.Embedded{Dir: filepath.Join(dir, "data", "etcd")}).With(core.Namespaces{}).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	if err := s.NoteBackup(ctx, controlplane.Backup{Taken: time.Now().Add(-48 * time.Hour), Revision: 1}); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return dir
}

// healthy is a server, read before and after its traffic.
func healthy(t *testing.T) [2]reading {
	t.Helper()
	s := start(t)
	s.do(http.StatusOK, http.MethodGet, "/backup", "")
	url, ca := answering(t)
	s.webhook("well", url, ca, "Fail")
	s.ordinary(0)
	before := s.metrics()
	s.ordinary(1)
	return [2]reading{before, s.metrics()}
}

// troubled is a server for whose clients everything goes wrong that has a metric.
func troubled(t *testing.T) [2]reading {
	t.Helper()
	s := startIn(t, neglected(t), "--storage-api", "--audit-log", "/dev/full") // no event can be written
	url, ca := answering(t)
	s.webhook("well", url, ca, "Fail")
	s.webhook("open", nowhere, nil, "Ignore")
	s.webhook("shut", nowhere, nil, "Fail")
	s.eventually(http.StatusInternalServerError, http.MethodPost, configMaps, configMap("shut", "shut"))
	token := s.limited()
	s.blobs()
	tooMany := s.fill()
	first := []string{"/api/v1/secrets", "/apis/coordination.k8s.io/v1/leases"} // caches are made for their first readers
	wrong := func(round int) (crowd reading) {
		s.ordinary(round)
		s.do(http.StatusOK, http.MethodGet, first[round], "")
		s.do(http.StatusCreated, http.MethodPost, configMaps, configMap(fmt.Sprint("open-", round), "open"))
		tooMany()
		for range 5 {
			s.do(http.StatusInternalServerError, http.MethodPost, configMaps, configMap("shut", "shut"))
		}
		s.do(http.StatusBadRequest, http.MethodPost, configMaps, configMap("refused", "well"))
		s.do(http.StatusRequestEntityTooLarge, http.MethodPost, "/apis/example.com/v1/blobs",
			`{"apiVersion":"example.com/v1","kind":"Blob","metadata":{"name":"big"},"data":"`+strings.Repeat("x", 2<<20)+`"}`)
		return s.crowd(token)
	}
	return [2]reading{wrong(0), wrong(1)}
}

// limited returns a token whose requests have a priority level that lets none
// through and has room for two in its queue.
func (s *server) limited() string {
	s.t.Helper()
	s.do(http.StatusCreated, http.MethodPost, "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{
		"metadata": {"name": "none"},
		"spec": {"type": "Limited", "limited": {
			"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
			"limitResponse": {"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 2}}
		}}
	}`)
	s.do(http.StatusCreated, http.MethodPost, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{
		"metadata": {"name": "none"},
		"spec": {
			"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "none"},
			"rules": [{
				"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "limited", "namespace": "default"}}],
				"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]
			}]
		}
	}`)
	s.do(http.StatusCreated, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"limited"}}`)
	var request struct{ Status struct{ Token string } }
	if err := json.Unmarshal(s.do(http.StatusCreated, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/limited/token", `{}`), &request); err != nil {
		s.t.Fatal(err)
	}
	return request.Status.Token
}

// blobs serves objects of any size.
func (s *server) blobs() {
	s.t.Helper()
	s.do(http.StatusCreated, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{
		"metadata": {"name": "blobs.example.com"},
		"spec": {
			"group": "example.com", "scope": "Cluster", "names": {"plural": "blobs", "kind": "Blob"},
			"versions": [{"name": "v1", "served": true, "storage": true,
				"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
		}
	}`)
	s.eventually(http.StatusOK, http.MethodGet, "/apis/example.com/v1/blobs", "")
}

// crowd has requests of the token wait in their queue, and returns the metrics
// of that moment.
func (s *server) crowd(token string) reading {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer leave()
	const clients, room = 10, 2
	rejected := make(chan struct{}, clients)
	for range clients {
		waiting.Go(func() {
			for ctx.Err() == nil {
				code, _, _ := s.send(ctx, token, http.MethodGet, configMaps, "")
				if code == http.StatusTooManyRequests {
					rejected <- struct{}{}
					return
				}
				time.Sleep(10 * time.Millisecond) // the level is not followed yet
			}
		})
	}
	for range clients - room {
		select {
		case <-rejected:
		case <-time.After(patience):
			s.t.Fatalf("too few of %d requests were rejected in %v", clients, patience)
		}
	}
	return s.metrics()
}
