package core_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
)

// TestAllocation runs against one server: each sub-test works in names of its own.
func TestAllocation(t *testing.T) {
	t.Parallel()
	client := serve(t, core.Services{ClusterIPs: "198.18.0.0/24", NodePorts: "30000-30099"})
	tests := map[string]func(*testing.T, *kubernetes.Clientset){
		"Given": allocationGiven,
		"None":  allocationNone,
		"Kept":  allocationKept,
		"Type":  allocationType,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client)
		})
	}
}

// TestAllocationAsked: nobody there is given what others ask for.
func TestAllocationAsked(t *testing.T) {
	t.Parallel()
	client := serve(t, core.Services{ClusterIPs: "198.18.0.0/24", NodePorts: "30000-30099"})
	allocationAsked(t, client)
	allocationSameNodePort(t, client)
}

// allocationGiven: who asks for nothing gets an address of its own, which is described.
func allocationGiven(t *testing.T, client *kubernetes.Clientset) {
	seen := map[string]bool{}
	for i := range 20 {
		s := createService(t, client, fmt.Sprintf("given-%d", i), corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort})
		ip, err := netip.ParseAddr(s.Spec.ClusterIP)
		if err != nil || !netip.MustParsePrefix("198.18.0.0/24").Contains(ip) || seen[s.Spec.ClusterIP] {
			t.Errorf("address %s (%v), want one of the network that nobody has: %v", s.Spec.ClusterIP, err, seen)
		}
		seen[s.Spec.ClusterIP] = true
		want := corev1.ServiceSpec{
			ClusterIPs: []string{s.Spec.ClusterIP}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
		}
		got := corev1.ServiceSpec{ClusterIPs: s.Spec.ClusterIPs, IPFamilies: s.Spec.IPFamilies, IPFamilyPolicy: s.Spec.IPFamilyPolicy}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the address is described (-want +got):\n%s", diff)
		}
		port := s.Spec.Ports[0].NodePort
		if key := fmt.Sprint(port); port < 30000 || port > 30099 || seen[key] {
			t.Errorf("node port %d, want one of the range that nobody has", port)
		} else {
			seen[key] = true
		}
	}
}

// allocationNone: headless services and external names have no address.
func allocationNone(t *testing.T, client *kubernetes.Clientset) {
	s := createService(t, client, "headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone})
	if diff := cmp.Diff([]string{corev1.ClusterIPNone}, s.Spec.ClusterIPs); diff != "" || len(s.Spec.IPFamilies) != 1 {
		t.Errorf("a headless service has families %v, addresses (-want +got):\n%s", s.Spec.IPFamilies, diff)
	}
	s = createService(t, client, "external", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"})
	if s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs)+len(s.Spec.IPFamilies) > 0 || s.Spec.IPFamilyPolicy != nil {
		t.Errorf("an external name has an address: %+v", s.Spec)
	}
}

// allocationAsked: who asks for an address or a port gets it, or why not.
func allocationAsked(t *testing.T, client *kubernetes.Clientset) {
	asked := createService(t, client, "asked", corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "198.18.0.1", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30050}},
	})
	if asked.Spec.ClusterIP != "198.18.0.1" || asked.Spec.Ports[0].NodePort != 30050 {
		t.Errorf("got %s and %d, want what was asked for", asked.Spec.ClusterIP, asked.Spec.Ports[0].NodePort)
	}
	cases := map[string]struct{ ip, want string }{
		"outside":   {"198.18.1.1", `spec.clusterIPs: Invalid value: ["198.18.1.1"]: failed to allocate IP 198.18.1.1: the provided IP (198.18.1.1) is not in the valid range. The range of valid IPs is 198.18.0.0/24`},
		"broadcast": {"198.18.0.255", "is not in the valid range"},
		"network":   {"198.18.0.0", "is not in the valid range"},
		"family":    {"fd00::1", "is not in the valid range"},
		"taken":     {"198.18.0.1", `spec.clusterIPs: Invalid value: ["198.18.0.1"]: failed to allocate IP 198.18.0.1: provided IP is already allocated`},
	}
	for name, c := range cases {
		// The cache that says what is taken is a moment behind.
		var err error
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
			_, err = client.CoreV1().Services("default").Create(t.Context(),
				newService("asked-"+name, corev1.ServiceSpec{ClusterIP: c.ip}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				break
			}
		}
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// allocationKept: an update that names no address keeps it, and nobody else gets it.
func allocationKept(t *testing.T, client *kubernetes.Clientset) {
	s := createService(t, client, "kept", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer})
	next := newService("kept", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer})
	next.ResourceVersion, next.Labels = s.ResourceVersion, map[string]string{"a": "b"}
	got, err := client.CoreV1().Services("default").Update(t.Context(), next, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Spec, got.Spec); diff != "" {
		t.Errorf("after an update without address and port (-want +got):\n%s", diff)
	}
}

// allocationType: a service that becomes an external name gives its address up, and gets
// one when it is no longer.
func allocationType(t *testing.T, client *kubernetes.Clientset) {
	s := createService(t, client, "type", corev1.ServiceSpec{})
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "db.example.com"
	s, err := client.CoreV1().Services("default").Update(t.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs) > 0 {
		t.Errorf("an external name keeps %v", s.Spec.ClusterIPs)
	}
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
	s, err = client.CoreV1().Services("default").Update(t.Context(), s, metav1.UpdateOptions{})
	if err != nil || !strings.HasPrefix(s.Spec.ClusterIP, "198.18.0.") {
		t.Errorf("%v, %v: want an address again", s, err)
	}
}

// allocationSameNodePort: one number serves two protocols of a service, as in Kubernetes.
func allocationSameNodePort(t *testing.T, client *kubernetes.Clientset) {
	s := createService(t, client, "same", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
		{Name: "tcp", Port: 53, NodePort: 30060}, {Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30060},
	}})
	if s.Spec.Ports[0].NodePort != 30060 || s.Spec.Ports[1].NodePort != 30060 {
		t.Errorf("ports %+v, want 30060 for both", s.Spec.Ports)
	}
}
