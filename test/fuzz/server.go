package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// patience is how long anything may take before it counts as hanging.
const patience = 2 * time.Minute

// server is the one that is attacked.
type server struct {
	dir       string
	token     string
	handler   http.Handler
	resources []resource
	log       *journal
	stop      context.CancelFunc
	ended     chan error
}

// begin starts a server with the parts of "sailplane serve".
func begin(parent context.Context) (*server, error) {
	s := &server{token: rand.Text(), log: &journal{}, ended: make(chan error, 1)}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(s.log)))
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	var err error
	if s.dir, err = os.MkdirTemp("", "fuzz-"); err != nil {
		return nil, err
	}
	tokens := filepath.Join(s.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(s.token+",chief,1,system:masters\n"), 0o600); err != nil {
		return nil, err
	}
	built, err := controlplane.New("fuzz").Storage(memory.Store{}).With(
		authn.Tokens{File: tokens}, authz.RBAC{}, preset.Standard(), kube.All(),
		aggregator.APIServices{}, crd.Definitions{}, serviceaccount.Tokens{}, fairness.PriorityAndFairness{},
		auditing.Log{Path: filepath.Join(s.dir, "audit.log"), MaxSize: 10 << 20, MaxBackups: 1},
	).Build()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(parent), logger))
	s.stop, s.handler = cancel, built.Handler()
	go func() { s.ended <- built.Run(ctx) }()
	select {
	case <-built.Ready():
	case err := <-s.ended:
		s.ended <- nil
		return nil, errors.Join(err, s.end())
	}
	if err := s.furnish(parent, built.ClientConfig()); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

func (s *server) end() error {
	s.stop()
	return errors.Join(<-s.ended, os.RemoveAll(s.dir))
}

// resource is one that the server serves, or a sub-resource.
type resource struct {
	metav1.APIResource
	version string // such as "apps/v1"
}

// furnish makes namespaces and a kind of custom resources, and learns what is served.
func (s *server) furnish(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for path, body := range map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": gourds,
	} {
		if err := client.RESTClient().Post().AbsPath(path).Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(ctx).Error(); err != nil {
			return fmt.Errorf("POST %s: %w", path, err)
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		s.resources = nil
		_, lists, err := client.Discovery().ServerGroupsAndResources()
		if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
			return err
		}
		custom := false
		for _, list := range lists {
			for _, r := range list.APIResources {
				s.resources = append(s.resources, resource{r, list.GroupVersion})
				custom = custom || r.Name == "gourds"
			}
		}
		if custom {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the custom resource is not served")
		}
	}
}

// gourds is a CRD with all that a schema can have.
const gourds = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gourds.fuzz.example.com"},
"spec":{"group":"fuzz.example.com","scope":"Namespaced","names":{"plural":"gourds","kind":"Gourd"},"versions":[
{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
"additionalPrinterColumns":[{"name":"min","type":"integer","jsonPath":".spec.min"}],"selectableFields":[{"jsonPath":".spec.colour"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
"replicas":{"type":"integer"},"min":{"type":"integer","default":1},"max":{"type":"integer"},"colour":{"type":"string","maxLength":20},
"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"either":{"x-kubernetes-int-or-string":true},
"list":{"type":"array","maxItems":10,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string","maxLength":9},"at":{"type":"string","format":"date-time"}}}}},
"x-kubernetes-validations":[{"rule":"!has(self.max) || self.min <= self.max","message":"min must not exceed max"}]},
"status":{"type":"object","properties":{"replicas":{"type":"integer"},"ripe":{"type":"boolean"}}}}}}}]}}`

// answer is what came back; code 0 says that none came.
type answer struct {
	code     int
	header   http.Header
	body     []byte
	panicked string
}

// send has the handler answer a request, or gives up on watches.
func (s *server) send(ctx context.Context, r sent) answer {
	limit := patience
	if r.endless() {
		limit = 20 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, r.method, "https://fuzz"+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{code: http.StatusBadRequest} // Go's server would not take it
	}
	request.RequestURI, request.RemoteAddr = r.path, "192.0.2.1:1234"
	request.Header.Set("Authorization", "Bearer "+s.token)
	for name, value := range map[string]string{"Content-Type": r.contentType, "Accept": r.accept} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	w := &recorder{httptest.NewRecorder(), make(chan bool)}
	why := served(s.handler, w, request)
	switch {
	case why != nil && why != http.ErrAbortHandler: //nolint:errorlint // as Go's server compares it
		return answer{panicked: fmt.Sprint(why)}
	case why != nil || r.endless() && ctx.Err() != nil:
		return answer{}
	}
	return answer{code: w.Code, header: w.Header(), body: w.Body.Bytes()}
}

// recorder is a writer as Go's server gives to handlers, which watches need.
type recorder struct {
	*httptest.ResponseRecorder
	gone chan bool
}

// CloseNotify implements http.CloseNotifier.
func (r *recorder) CloseNotify() <-chan bool { return r.gone }

// served has a handler answer, and returns what it panicked with, as Go's server lets it.
func served(h http.Handler, w http.ResponseWriter, r *http.Request) (why any) {
	defer func() { why = recover() }()
	h.ServeHTTP(w, r)
	return nil
}

// wrong says what is wrong with an answer; nothing if it is right.
func (a answer) wrong(r sent) string {
	switch {
	case a.panicked != "":
		return "panic"
	case a.code < http.StatusBadRequest:
		return ""
	}
	status, isStatus := metav1.Status{}, false
	if strings.Contains(a.header.Get("Content-Type"), "json") {
		isStatus = json.Unmarshal(a.body, &status) == nil && status.Kind == "Status"
		if !isStatus && r.method != http.MethodHead {
			return "error without a Status"
		}
	}
	switch {
	case a.code < http.StatusInternalServerError:
		return ""
	case a.code == http.StatusGatewayTimeout && strings.Contains(status.Message, "Too large resource version"):
		return "" // a version of the future, which the server waits for
	case a.code == http.StatusServiceUnavailable && isStatus:
		return "" // an APIService without a server, or what is not yet there
	}
	return fmt.Sprint(a.code)
}

// journal keeps what the server logs of panics.
type journal struct {
	mu   sync.Mutex
	seen []string
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	for _, sign := range []string{"Observed a panic", "panic serving", "panic'd"} {
		if bytes.Contains(p, []byte(sign)) {
			j.mu.Lock()
			j.seen = append(j.seen, string(p[:min(len(p), 4000)]))
			j.mu.Unlock()
			break
		}
	}
	return len(p), nil
}

func (j *journal) panics() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen
}
