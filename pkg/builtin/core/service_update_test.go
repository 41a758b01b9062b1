package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestUpdateService prepares and validates an update, as the server does.
func TestUpdateService(t *testing.T) {
	t.Parallel()
	withIP := func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.1" }
	balancer := func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.LoadBalancerClass = "LoadBalancer", "10.0.0.1", ptr.To("example.org/a")
		s.Spec.Ports[0].NodePort, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = 30000, "Local", 30001
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "a"}}
	}
	dual := func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "2001:db8::1"}
		s.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"}
	}
	cases := map[string]struct {
		reason   string
		old      func(*corev1.Service)
		now      func(*corev1.Service)
		want     func(*testing.T, *corev1.Service)
		problems []string
	}{
		"LeftOut": {
			reason: "a replacement without an address keeps it", old: withIP,
			want: func(t *testing.T, s *corev1.Service) {
				t.Helper()
				if s.Spec.ClusterIP != "10.0.0.1" || len(s.Spec.ClusterIPs) != 1 {
					t.Errorf("got %q, %q", s.Spec.ClusterIP, s.Spec.ClusterIPs)
				}
			},
		},
		"Given": {reason: "a service without an address may get one", now: withIP},
		"Changed": {
			reason: "an address stays", old: withIP,
			now:      func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.2" },
			problems: []string{`spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`},
		},
		"SecondReleased": {
			reason: "to have one family only has to be said", old: dual,
			now: func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.IPFamilies = "10.0.0.1", []corev1.IPFamily{"IPv4"}
				s.Spec.ClusterIPs = []string{"10.0.0.1"}
			},
			problems: []string{
				`spec.ipFamilyPolicy: Invalid value: null: must be set to 'SingleStack' when releasing the secondary clusterIP`,
				`spec.ipFamilyPolicy: Invalid value: null: must be set to 'SingleStack' when releasing the secondary ipFamily`,
			},
		},
		"FamiliesSwapped": {
			reason: "the first family stays", old: dual,
			now: func(s *corev1.Service) { dual(s); s.Spec.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"} },
			problems: []string{
				`spec.ipFamilies[0]: Invalid value: ["IPv6","IPv4"]: may not change once set`,
				`spec.ipFamilies[0]: Invalid value: ["IPv6","IPv4"]: may not change once set`,
				"spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
				"spec.clusterIPs[1]: Invalid value: \"2001:db8::1\": expected an IPv4 value as indicated by `ipFamilies[1]`",
			},
		},
		"NodePortsLeftOut": {
			reason: "ports of nodes stay too", old: balancer,
			now: func(s *corev1.Service) {
				s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.ExternalTrafficPolicy = "LoadBalancer", ptr.To("example.org/a"), "Local"
			},
			want: func(t *testing.T, s *corev1.Service) {
				t.Helper()
				if s.Spec.Ports[0].NodePort != 30000 || s.Spec.HealthCheckNodePort != 30001 {
					t.Errorf("got %+v", s.Spec)
				}
			},
		},
		"ToClusterIP": {
			reason: "what only a load balancer has goes with the type", old: balancer,
			now: func(s *corev1.Service) {
				balancer(s)
				s.Spec.Type = "ClusterIP"
				s.Spec.AllocateLoadBalancerNodePorts = ptr.To(true)
			},
			want: func(t *testing.T, s *corev1.Service) {
				t.Helper()
				want := service(withIP).Spec
				if diff := cmp.Diff(want, s.Spec); diff != "" || len(s.Status.LoadBalancer.Ingress) > 0 {
					t.Errorf("status %+v, spec (-want +got):\n%s", s.Status, diff)
				}
			},
		},
		"ToExternalName": {
			reason: "a name has no address", old: withIP,
			now: func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP = "ExternalName", "a.example.org", "10.0.0.1"
			},
			want: func(t *testing.T, s *corev1.Service) {
				t.Helper()
				if s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs) > 0 {
					t.Errorf("got %q, %q", s.Spec.ClusterIP, s.Spec.ClusterIPs)
				}
			},
		},
		"ClassAndHealthCheck": {
			reason: "a load balancer keeps whose it is, and its port", old: balancer,
			now: func(s *corev1.Service) {
				balancer(s)
				s.Spec.LoadBalancerClass, s.Spec.HealthCheckNodePort = ptr.To("example.org/b"), 30002
			},
			problems: []string{
				`spec.loadBalancerClass: Invalid value: "example.org/b": may not change once set`,
				`spec.healthCheckNodePort: Forbidden: field is immutable`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, old := service(tc.now), service(tc.old)
			s.Status = old.Status
			prepareServiceUpdate(t.Context(), s, old)
			errs := append(validateServiceUpdate(t.Context(), s, old), validateService(t.Context(), s)...)
			if diff := cmp.Diff(tc.problems, texts(errs)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if tc.want != nil {
				tc.want(t, s)
			}
		})
	}
}
