package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const labelRule = `a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an ` +
	`alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`

func addresses(ips ...string) []corev1.EndpointAddress {
	var all []corev1.EndpointAddress
	for _, ip := range ips {
		all = append(all, corev1.EndpointAddress{IP: ip})
	}
	return all
}

func TestValidateEndpoints(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		subsets []corev1.EndpointSubset
		want    []string
	}{
		"Empty": {reason: "a service may have no endpoints"},
		"Valid": {
			reason: "both families, ready and not, several named ports",
			subsets: []corev1.EndpointSubset{{
				Addresses: addresses("10.0.0.1"), NotReadyAddresses: addresses("2001:db8::1"),
				Ports: []corev1.EndpointPort{{Name: "a", Port: 1, Protocol: "TCP"}, {Name: "b", Port: 65535, Protocol: "SCTP"}},
			}},
		},
		"NoAddress": {
			reason:  "a subset is of addresses",
			subsets: []corev1.EndpointSubset{{}},
			want:    []string{"subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"},
		},
		"Addresses": {
			reason: "an address is one, and reaches one machine",
			subsets: []corev1.EndpointSubset{{
				Addresses:         addresses("x", "010.0.0.1", "::ffff:1.2.3.4", "0.0.0.0", "127.0.0.1", "169.254.1.1"),
				NotReadyAddresses: addresses("224.0.0.1"),
			}},
			want: []string{
				`subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				`subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address`,
				`subsets[0].addresses[1].ip: Invalid value: "010.0.0.1": must not have leading 0s`,
				`subsets[0].addresses[2].ip: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address`,
				`subsets[0].addresses[3].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`,
				`subsets[0].addresses[4].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
				`subsets[0].addresses[5].ip: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
				`subsets[0].notReadyAddresses[0].ip: Invalid value: "224.0.0.1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`,
			},
		},
		"Names": {
			reason: "host names are labels",
			subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{
				{IP: "10.0.0.1", Hostname: "A", NodeName: ptr.To("node-1.example.org")},
			}}},
			want: []string{`subsets[0].addresses[0].hostname: Invalid value: "A": ` + labelRule},
		},
		"Ports": {
			reason: "of several ports each has a name",
			subsets: []corev1.EndpointSubset{{Addresses: addresses("10.0.0.1"), Ports: []corev1.EndpointPort{
				{Port: 0, Protocol: "TCP"}, {Name: "x_y", Port: 1, Protocol: "IP", AppProtocol: ptr.To("http")},
			}}},
			want: []string{
				`subsets[0].ports[0].name: Required value`,
				`subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`,
				`subsets[0].ports[1].name: Invalid value: "x_y": ` + labelRule,
				`subsets[0].ports[1].protocol: Unsupported value: "IP": supported values: "SCTP", "TCP", "UDP"`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateEndpoints(t.Context(), &corev1.Endpoints{Subsets: tc.subsets}))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEndpointsText(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		subsets []corev1.EndpointSubset
		want    string
	}{
		"None":     {reason: "nothing is there", want: "<none>"},
		"Headless": {reason: "no port", subsets: []corev1.EndpointSubset{{Addresses: addresses("10.0.0.1", "10.0.0.2")}}, want: "10.0.0.1,10.0.0.2"},
		"NotReady": {reason: "only ready ones are shown", subsets: []corev1.EndpointSubset{{NotReadyAddresses: addresses("10.0.0.1")}}},
		"Four": {
			reason: "each port of each address counts, and three are shown",
			subsets: []corev1.EndpointSubset{{
				Addresses: addresses("10.0.0.1", "2001:db8::1"), Ports: []corev1.EndpointPort{{Port: 80}, {Port: 81}},
			}},
			want: "10.0.0.1:80,[2001:db8::1]:80,10.0.0.1:81 + 1 more...",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := endpointsText(&corev1.Endpoints{Subsets: tc.subsets}); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
