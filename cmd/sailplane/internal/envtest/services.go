package envtest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// serviceName is the service that stands for the API server, and all its objects.
const serviceName = "kubernetes"

// services returns the part that makes the objects that kube-apiserver makes for itself.
func (s *apiServer) services(c *config.Server) (controlplane.Part, error) {
	network, _, _ := strings.Cut(c.Services.ClusterIPs, ",")
	prefix, err := netip.ParsePrefix(strings.TrimSpace(network))
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range %q: want a network, such as 10.0.0.0/24", c.Services.ClusterIPs)
	}
	first := prefix.Masked().Addr().Next()
	return controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Work(controlplane.Work{Name: "service kubernetes", Start: func(ctx context.Context, plane *controlplane.Plane) error {
			return s.ensureItself(ctx, plane.Client(), first)
		}})
		return nil
	}), nil
}

// ensureItself makes what is missing: the namespaces of Kubernetes, and service
// kubernetes with its endpoints.
func (s *apiServer) ensureItself(ctx context.Context, client kubernetes.Interface, first netip.Addr) error {
	for _, name := range []string{metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); ignoreExists(err) != nil {
			return fmt.Errorf("create namespace %q: %w", name, err)
		}
	}
	meta := metav1.ObjectMeta{Name: serviceName, Namespace: metav1.NamespaceDefault, Labels: map[string]string{
		"component": "apiserver", "provider": "kubernetes",
	}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: first.String(), SessionAffinity: corev1.ServiceAffinityNone,
		Ports: []corev1.ServicePort{{
			Name: "https", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt(s.port),
		}},
	}}
	if _, err := client.CoreV1().Services(meta.Namespace).Create(ctx, service, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("create service %q: %w", serviceName, err)
	}
	address := s.reachable()
	if address == nil {
		return nil // this machine has only loopback addresses: nobody reaches the service
	}
	return s.ensureEndpoints(ctx, client, address)
}

// ensureEndpoints sets the address in the endpoints of service kubernetes.
func (s *apiServer) ensureEndpoints(ctx context.Context, client kubernetes.Interface, address net.IP) error {
	port, name, protocol := int32(s.port), "https", corev1.ProtocolTCP //nolint:gosec // a port
	//nolint:staticcheck // deprecated, but kube-apiserver makes them
	endpoints := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName, Namespace: metav1.NamespaceDefault, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"},
		},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: address.String()}},
			Ports:     []corev1.EndpointPort{{Name: name, Port: port, Protocol: protocol}},
		}},
	}
	all := client.CoreV1().Endpoints(metav1.NamespaceDefault)
	if _, err := all.Update(ctx, endpoints, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = all.Create(ctx, endpoints, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create endpoints %q: %w", serviceName, err)
		}
	} else if err != nil {
		return fmt.Errorf("update endpoints %q: %w", serviceName, err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName, Namespace: metav1.NamespaceDefault, Labels: map[string]string{discoveryv1.LabelServiceName: serviceName},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	if address.To4() == nil {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	// The address type cannot change, so a slice of an earlier start is deleted
	// first.
	if err := slices.Delete(ctx, serviceName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete endpointslice %q: %w", serviceName, err)
	}
	if _, err := slices.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create endpointslice %q: %w", serviceName, err)
	}
	return nil
}

// ignoreExists returns err, or nil if it says that the object exists already.
func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// reachable returns the address at which others reach the server, chosen as in
// kube-apiserver; nil if there is none.
func (s *apiServer) reachable() net.IP {
	value := s.advertise
	if value == "" {
		value = s.address
	}
	ip := net.ParseIP(value)
	if s.advertise != "" {
		return ip
	}
	chosen, err := utilnet.ResolveBindAddress(ip)
	if err != nil || chosen.IsLoopback() {
		return nil
	}
	return chosen
}
