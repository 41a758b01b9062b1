package aggregator

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryvalidation "k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

// URLAnnotation on an APIService says where its server is, when nothing else finds the
// Service: "https://HOST[:PORT][/PATH]". TLS is verified for that host, with spec.caBundle,
// or without one with the authorities that the machine trusts.
const URLAnnotation = "sailplane.dev/url"

// ServerLabel is on the APIServices that are made for the group versions of a [Server]. Its
// value is the server's name, with a dot in place of the slash.
const ServerLabel = "sailplane.dev/server"

// Server is another API server, which the operator names.
type Server struct {
	// Name is the namespace and Service of the APIServices that the server answers,
	// "NAMESPACE/NAME". One is made for each group version that the server has, that the
	// plane does not serve itself, and that has no APIService yet. Required.
	Name string
	// URL is where the server is: "https://HOST[:PORT][/PATH]". Denied networks do not
	// matter. Empty: it is the Handler.
	URL string
	// CAFile has the authorities that the server's certificate is verified with, for the
	// host of URL, PEM encoded. Changes take effect within seconds. Empty: those that the
	// machine trusts.
	CAFile string
	// Handler is a server in this process: it is called, without a socket. Requests have the
	// headers X-Remote-User and so on that tell who asks, and nobody else's. Nil: there is a
	// URL.
	Handler http.Handler
	// Guard has what is created at the server checked before it is handed on: the namespace
	// exists and is not being deleted (core.Namespaces), and ResourceQuotas have room
	// (quota.ResourceQuotas). Empty: quotas count its objects, and limit none.
	Guard bool
	// Admission has all admission of this plane see what is created, updated, patched and
	// deleted at the server: functions in Go, webhooks, policies, quotas. What mutation makes
	// of an object is what the server gets. Of an update, the object before is what the server
	// has when it is asked; a patch is tried in a dry run, and then handed on for the object
	// as it was. Bodies in protobuf are refused: nobody here knows the types.
	Admission bool
}

// given is a Server of a part, checked and read.
type given struct {
	Server
	namespace, name string
	base            *url.URL
	ca              atomic.Pointer[string] // PEM
}

// give checks a server.
func give(s Server) (*given, error) {
	g := &given{Server: s}
	var ok bool
	if g.namespace, g.name, ok = strings.Cut(s.Name, "/"); !ok ||
		len(apimachineryvalidation.IsDNS1123Label(g.namespace)) > 0 || len(apimachineryvalidation.IsDNS1035Label(g.name)) > 0 {
		return nil, fmt.Errorf("field Name: %q: want NAMESPACE/NAME of a Service", s.Name)
	}
	if len(g.label()) > apimachineryvalidation.LabelValueMaxLength {
		return nil, fmt.Errorf("field Name: %q: is longer than %d characters", s.Name, apimachineryvalidation.LabelValueMaxLength)
	}
	switch {
	case (s.URL == "") == (s.Handler == nil):
		return nil, errors.New("fields URL and Handler: set one of them")
	case s.Handler != nil && s.CAFile != "":
		return nil, errors.New("field CAFile: is for a server with a URL")
	case s.Handler != nil:
		return g, nil
	}
	var err error
	if g.base, err = parseURL(s.URL); err != nil {
		return nil, fmt.Errorf("field URL: %w", err)
	}
	return g, nil
}

// label is the value of [ServerLabel].
func (g *given) label() string { return g.namespace + "." + g.name }

// place is where the server is now. Whatever port an APIService names, it is the same.
func (g *given) place() place {
	at := place{namespace: g.namespace, name: g.name, given: g}
	if ca := g.ca.Load(); ca != nil {
		at.ca = *ca
	}
	return at
}

// install declares that the server's file is read, and followed.
func (g *given) install(p *controlplane.Plan, changed func()) {
	if g.CAFile == "" {
		return
	}
	read := func(file string) ([]byte, error) {
		content, err := os.ReadFile(file)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(content) {
			err = fmt.Errorf("%s: has no certificate, PEM encoded", file)
		}
		return content, err
	}
	use := func(_ context.Context, content []byte) error {
		ca := string(content)
		g.ca.Store(&ca)
		changed()
		return nil
	}
	source := follow.Source{What: "authorities of server " + g.Name, File: g.CAFile, Read: read, Use: use}
	p.Read(func() error {
		content, err := follow.Parse("field Servers: CAFile", source, func(content []byte) (string, error) { return string(content), nil })
		g.ca.Store(&content)
		return err
	})
	p.Work(controlplane.Work{Name: "follow the " + source.What, Run: func(ctx context.Context, _ *controlplane.Plane) error {
		return (&follow.File{Source: source}).Run(ctx)
	}})
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q: %w", s, errors.Unwrap(err))
	case u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, fmt.Errorf("%q: want https://HOST[:PORT][/PATH]", s)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// place is where the server of an APIService is, and how it is known. APIServices with equal
// places are of one server.
type place struct {
	namespace, name string
	port            int32
	url             string // as in the annotation
	ca              string
	insecure        bool
	given           *given // by the operator
}

// address is the URL for clients. Only one that TLS is verified for is one for them, too.
func (p place) address() string {
	if p.given != nil {
		return p.given.URL
	}
	return p.url
}

// placeOf returns the place of a remote APIService.
func placeOf(s *apiregistrationv1.APIService, servers []*given) place {
	at := place{namespace: s.Spec.Service.Namespace, name: s.Spec.Service.Name, port: 443}
	if s.Spec.Service.Port != nil {
		at.port = *s.Spec.Service.Port
	}
	for _, g := range servers {
		if g.namespace == at.namespace && g.name == at.name {
			return g.place()
		}
	}
	at.url, at.ca, at.insecure = s.Annotations[URLAnnotation], string(s.Spec.CABundle), s.Spec.InsecureSkipTLSVerify
	return at
}

// String is the name of the server for people.
func (p place) String() string { return p.namespace + "/" + p.name }

// apiService is the APIService that is made for a group version of the server, the nth of its
// group.
func (g *given) apiService(gv schema.GroupVersion, n int) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(gv), Labels: map[string]string{ServerLabel: g.label()}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version,
			GroupPriorityMinimum: 1000, VersionPriority: int32(max(100-n, 1)), //nolint:gosec // at most 100
			Service: &apiregistrationv1.ServiceReference{Namespace: g.namespace, Name: g.name},
		},
	}
}
