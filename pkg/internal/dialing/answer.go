package dialing

import (
	"net"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Resolver has clients of webhooks use the dialer, with the credentials of another
// resolver. For a host and port that a handler in the process answers for, they use that
// instead.
func (d Dialer) Resolver(credentials webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	answer := func(host string, c *rest.Config) *rest.Config {
		if way := d.plan.HostTransport(host); way != nil {
			// Config.Transport would do, but not with the CA that a webhook may have.
			c.WrapTransport = func(http.RoundTripper) http.RoundTripper { return way }
		}
		return c
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(host string) (*rest.Config, error) {
			c, err := credentials.ClientConfigFor(host)
			if err != nil {
				return nil, err
			}
			d.Configure(c)
			return answer(host, c), nil
		},
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			c, err := credentials.ClientConfigForService(name, namespace, port)
			if err != nil {
				return nil, err
			}
			d.ConfigureService(c, name, namespace, port)
			return answer(serviceHost(name, namespace, port), c), nil
		},
	}
}

// ResolveEndpoint implements webhook.ServiceResolver. A Service that a handler in the
// process answers for has its name as address; others are left to the plan.
func (d Dialer) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	host := serviceHost(name, namespace, int(port))
	if d.plan.HostTransport(host) != nil {
		return &url.URL{Scheme: "https", Host: host}, nil
	}
	return d.plan.ResolveEndpoint(namespace, name, port)
}

func serviceHost(name, namespace string, port int) string {
	return net.JoinHostPort(name+"."+namespace+".svc", strconv.Itoa(port))
}
