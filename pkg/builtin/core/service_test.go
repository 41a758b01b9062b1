package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// service is a valid one, with defaults and a change.
func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if change != nil {
		change(s)
	}
	defaultService(s)
	fillClusterIPs(s)
	return s
}

func TestDefaultService(t *testing.T) {
	t.Parallel()
	cluster := ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	port := corev1.ServicePort{Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(80)}
	cases := map[string]struct {
		reason   string
		in, want corev1.ServiceSpec
	}{
		"ClusterIP": {
			reason: "a type, a protocol and a target, but no address",
			in:     corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			want: corev1.ServiceSpec{
				Type: "ClusterIP", SessionAffinity: "None", InternalTrafficPolicy: cluster, Ports: []corev1.ServicePort{port},
			},
		},
		"ExternalName": {
			reason: "there is no traffic to have a policy for",
			in:     corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a.example.org"},
			want:   corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a.example.org", SessionAffinity: "None"},
		},
		"LoadBalancer": {
			reason: "it takes traffic from outside",
			in:     corev1.ServiceSpec{Type: "LoadBalancer"},
			want: corev1.ServiceSpec{
				Type: "LoadBalancer", SessionAffinity: "None", InternalTrafficPolicy: cluster,
				ExternalTrafficPolicy: "Cluster", AllocateLoadBalancerNodePorts: ptr.To(true),
			},
		},
		"Affinity": {
			reason: "three hours; external addresses make a service external",
			in:     corev1.ServiceSpec{SessionAffinity: "ClientIP", ExternalIPs: []string{"192.0.2.1"}},
			want: corev1.ServiceSpec{
				Type: "ClusterIP", SessionAffinity: "ClientIP", InternalTrafficPolicy: cluster, ExternalTrafficPolicy: "Cluster",
				ExternalIPs:           []string{"192.0.2.1"},
				SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10800)}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &corev1.Service{Spec: tc.in}
			defaultService(s)
			if diff := cmp.Diff(tc.want, s.Spec); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidateService(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*corev1.Service)
		want   []string
	}{
		"ClusterIP": {reason: "no address is needed"},
		"GivenAddresses": {reason: "one of each family", change: func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "2001:db8::1"}
		}},
		"Headless": {reason: "it needs no port", change: func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Ports = "None", nil }},
		"ExternalName": {reason: "the name may end in a dot", change: func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a.example.org."}
		}},
		"NodePort": {reason: "no port of nodes is needed", change: func(s *corev1.Service) { s.Spec.Type = "NodePort" }},
		"LoadBalancer": {reason: "no health check port is needed", change: func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = "LoadBalancer", "Local"
		}},
		"NoPorts": {
			reason: "a service is of ports", change: func(s *corev1.Service) { s.Spec.Ports = nil },
			want: []string{`spec.ports: Required value`},
		},
		"Type": {
			reason: "a type is one of four", change: func(s *corev1.Service) { s.Spec.Type = "Mesh" },
			want: []string{`spec.type: Unsupported value: "Mesh": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`},
		},
		"HeadlessNodePort": {
			reason: "a nodePort leads to an address", change: func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = "NodePort", "None" },
			want: []string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`},
		},
		"ExternalNameWithAddress": {
			reason: "a name has no address",
			change: func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{
					Type: "ExternalName", ClusterIP: "10.0.0.1",
					IPFamilies: []corev1.IPFamily{"IPv4"}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
				}
			},
			want: []string{
				`spec.clusterIPs: Forbidden: may not be set for ExternalName services`,
				`spec.ipFamilies: Forbidden: may not be set for ExternalName services`,
				`spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services`,
				`spec.externalName: Required value`,
			},
		},
		"Ports": {
			reason: "each port has a name of its own, and numbers that exist",
			change: func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{
					{Port: 70000, TargetPort: intstr.FromInt32(70001)},
					{Name: "a", Port: 80, TargetPort: intstr.FromString("no_port"), NodePort: 30000},
					{Name: "a", Port: 80, Protocol: "IP", AppProtocol: ptr.To("example.org/a")},
					{Name: "b", Port: 80},
				}
			},
			want: []string{
				`spec.ports[0].name: Required value`,
				`spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`,
				`spec.ports[0].targetPort: Invalid value: 70001: must be between 1 and 65535, inclusive`,
				`spec.ports[1].targetPort: Invalid value: "no_port": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
				`spec.ports[2].name: Duplicate value: "a"`,
				`spec.ports[2].protocol: Unsupported value: "IP": supported values: "SCTP", "TCP", "UDP"`,
				"spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
				`spec.ports[3]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}`,
			},
		},
		"Selector": {
			reason: "a selector is of labels", change: func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b c"} },
			want: []string{`spec.selector: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, ` +
				`'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', ` +
				`regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		},
		"Affinity": {
			reason: "there are two",
			change: func(s *corev1.Service) { s.Spec.SessionAffinity = "Cookie" },
			want:   []string{`spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None"`},
		},
		"AffinityTimeout": {
			reason: "a day at most",
			change: func(s *corev1.Service) {
				s.Spec.SessionAffinity = "ClientIP"
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](86401)}}
			},
			want: []string{`spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400`},
		},
		"ClusterIPs": {
			reason: "both fields say the same",
			change: func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.2"} },
			want:   []string{"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: first value must match `clusterIP`"},
		},
		"PluralOnly": {
			reason: "a client that knows the new field sets both",
			change: func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.0.0.2"} },
			want:   []string{"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: must be empty when `clusterIP` is not specified"},
		},
		"Families": {
			reason: "a family is there once, and is that of its address",
			change: func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.IPFamilies = "10.0.0.1", []corev1.IPFamily{"IPv6", "IPv6", "IPX"}
				s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicy("Any"))
			},
			want: []string{
				`spec.ipFamilies[1]: Duplicate value: "IPv6"`,
				`spec.ipFamilies[2]: Unsupported value: "IPX": supported values: "IPv4", "IPv6"`,
				`spec.ipFamilyPolicy: Unsupported value: "Any": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`,
				"spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
			},
		},
		"SameFamily": {
			reason: "a second address is of the other family",
			change: func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "10.0.0.2"}
			},
			want: []string{`spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family`},
		},
		"ExternalIPs": {
			reason: "an address is in a form that everybody reads alike, and not of the machine itself",
			change: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"010.0.0.1", "127.0.0.1"} },
			want: []string{
				`spec.externalIPs[0]: Invalid value: "010.0.0.1": must not have leading 0s`,
				`spec.externalIPs[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
			},
		},
		"LoadBalancerFields": {
			reason: "other types have no load balancer",
			change: func(s *corev1.Service) {
				s.Spec.LoadBalancerSourceRanges, s.Spec.LoadBalancerClass = []string{"10.0.0.0/8"}, ptr.To("example.org/lb")
				s.Spec.AllocateLoadBalancerNodePorts, s.Spec.ExternalTrafficPolicy = ptr.To(false), "Local"
				s.Spec.HealthCheckNodePort = 30000
			},
			want: []string{
				"spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
				"spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
				"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
				`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`,
				"spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
			},
		},
		"SourceRanges": {
			reason: "a range has no bits beyond its prefix; spaces are allowed",
			change: func(s *corev1.Service) {
				s.Spec.Type, s.Spec.LoadBalancerSourceRanges = "LoadBalancer", []string{" 10.0.0.0/8 ", "10.0.0.1/8", "x"}
			},
			want: []string{
				`spec.LoadBalancerSourceRanges[1]: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length`,
				`spec.LoadBalancerSourceRanges[2]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`,
			},
		},
		"Policies": {
			reason: "policies are known",
			change: func(s *corev1.Service) {
				s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution = ptr.To(corev1.ServiceInternalTrafficPolicy("x")), ptr.To("y")
			},
			want: []string{
				`spec.internalTrafficPolicy: Unsupported value: "x": supported values: "Cluster", "Local"`,
				`spec.trafficDistribution: Unsupported value: "y": supported values: "PreferClose", "PreferSameNode", "PreferSameZone"`,
			},
		},
		"TopologyMode": {
			reason: "the old annotation says the same as the new",
			change: func(s *corev1.Service) {
				s.Annotations = map[string]string{"service.kubernetes.io/topology-mode": "Auto", "service.kubernetes.io/topology-aware-hints": "Disabled"}
			},
			want: []string{`metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "Auto": ` +
				`must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateService(t.Context(), service(tc.change)))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestServiceWarnings(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*corev1.Service)
		want   []string
	}{
		"None": {reason: "an ordinary service"},
		"Deprecated": {
			reason: "what goes away, and what is in an unusual form",
			change: func(s *corev1.Service) {
				s.Spec.ExternalIPs, s.Spec.TrafficDistribution = []string{"2001:DB8::1"}, ptr.To("PreferClose")
				s.Annotations = map[string]string{"service.kubernetes.io/topology-aware-hints": "Auto"}
			},
			want: []string{
				"annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
				`spec.externalIPs[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")`,
				"spec.externalIPs is deprecated and may no longer be implemented in some clusters",
				`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`,
			},
		},
		"Ignored": {
			reason: "what has no effect; what is no address is not looked at",
			change: func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.SessionAffinity, s.Spec.LoadBalancerIP, s.Spec.ExternalName = "None", "ClientIP", "x", "a"
			},
			want: []string{
				"spec.loadBalancerIP is ignored for headless services",
				"spec.SessionAffinity is ignored for headless services",
				`spec.externalName is ignored when spec.type is not "ExternalName"`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, serviceWarnings(t.Context(), service(tc.change))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestServiceRow(t *testing.T) {
	t.Parallel()
	ingress := []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}, {Hostname: "a.example.org"}}
	cases := map[string]struct {
		reason string
		s      *corev1.Service
		want   []any
	}{
		"ClusterIP": {"no address", service(nil), []any{"ClusterIP", "<none>", "<none>", "80/TCP", "<none>"}},
		"Pending":   {"nobody balances", service(func(s *corev1.Service) { s.Spec.Type = "LoadBalancer" }), []any{"LoadBalancer", "<none>", "<pending>", "80/TCP", "<none>"}},
		"Balanced": {"addresses, names and external addresses", service(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP, s.Spec.ExternalIPs = "LoadBalancer", "10.0.0.1", []string{"192.0.2.3"}
			s.Spec.Ports[0].NodePort, s.Spec.Selector = 30000, map[string]string{"a": "b"}
			s.Status.LoadBalancer.Ingress = ingress
		}), []any{"LoadBalancer", "10.0.0.1", "192.0.2.2,a.example.org,192.0.2.3", "80:30000/TCP", "a=b"}},
		"ExternalName": {"the name", service(func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a.example.org"}
		}), []any{"ExternalName", "<none>", "a.example.org", "<none>", "<none>"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, serviceRow(tc.s)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidateServiceStatus(t *testing.T) {
	t.Parallel()
	balancer := func(ingress ...corev1.LoadBalancerIngress) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ServiceSpec{Type: "LoadBalancer"}}
		s.Status.LoadBalancer.Ingress = ingress
		return s
	}
	cases := map[string]struct {
		reason string
		s      *corev1.Service
		want   []string
	}{
		"Valid": {"an address or a name", balancer(
			corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)}, corev1.LoadBalancerIngress{Hostname: "a.example.org"},
		), nil},
		"OtherType": {"only a load balancer has them", &corev1.Service{
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
		}, []string{"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"}},
		"Invalid": {"every mistake is named", balancer(
			corev1.LoadBalancerIngress{IP: "x"}, corev1.LoadBalancerIngress{Hostname: "192.0.2.1", IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)},
			corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: ptr.To(corev1.LoadBalancerIPMode("x"))},
		), []string{
			`status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			"status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set",
			"status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
			`status.loadBalancer.ingress[1].hostname: Invalid value: "192.0.2.1": must be a DNS name, not an IP address`,
			`status.loadBalancer.ingress[2].ipMode: Unsupported value: "x": supported values: "Proxy", "VIP"`,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateServiceStatus(tc.s))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
