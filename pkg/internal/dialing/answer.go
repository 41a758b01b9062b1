package dialing

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Resolver has clients of webhooks use the dialer, with the credentials of another
// resolver. For a host and port with a transport from answer, they use that
// instead.
func (d Dialer) Resolver(
	credentials webhook.AuthenticationInfoResolver, answer func(host string) http.RoundTripper,
) webhook.AuthenticationInfoResolver {
	reach := func(host string, c *rest.Config, err error) (*rest.Config, error) {
		c, err = d.Configure(c, err)
		if err != nil {
			return nil, err
		}
		if way := answer(host); way != nil {
			// Config.Transport would do, but not with the CA that a webhook may have.
			c.WrapTransport = func(http.RoundTripper) http.RoundTripper { return way }
		}
		return c, nil
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(host string) (*rest.Config, error) {
			c, err := credentials.ClientConfigFor(host)
			return reach(host, c, err)
		},
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			c, err := credentials.ClientConfigForService(name, namespace, port)
			return reach(serviceHost(name, namespace, port), c, err)
		},
	}
}

// Services resolves the Services that webhooks name. A Service with a transport
// from answer has its name as address; others are left to the resolver.
func Services(answer func(host string) http.RoundTripper, r webhook.ServiceResolver) webhook.ServiceResolver {
	return services{answer, r}
}

type services struct {
	answer func(host string) http.RoundTripper
	other  webhook.ServiceResolver
}

// ResolveEndpoint implements webhook.ServiceResolver.
func (s services) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	host := serviceHost(name, namespace, int(port))
	if s.answer(host) != nil {
		return &url.URL{Scheme: "https", Host: host}, nil
	}
	return s.other.ResolveEndpoint(namespace, name, port)
}

// NoServices resolves no Service, and returns an error that says what to do
// instead.
type NoServices string

// ResolveEndpoint implements webhook.ServiceResolver.
func (s NoServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %s/%s: %s", namespace, name, string(s))
}

func serviceHost(name, namespace string, port int) string {
	return net.JoinHostPort(name+"."+namespace+".svc", strconv.Itoa(port))
}
