package endpoints

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

const labelRule = `a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an ` +
	`alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`

func slice(t discoveryv1.AddressType, addresses ...string) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{AddressType: t, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}}}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		slice  discoveryv1.EndpointSlice
		want   []string
	}{
		"Empty":    {reason: "a service may have no endpoints", slice: discoveryv1.EndpointSlice{AddressType: "IPv4"}},
		"IPv4":     {reason: "addresses of the type", slice: slice("IPv4", "10.0.0.1")},
		"IPv6":     {reason: "addresses of the type", slice: slice("IPv6", "2001:db8::1")},
		"FQDN":     {reason: "a name may end in a dot", slice: slice("FQDN", "a.example.org.")},
		"Boundary": {reason: "as many as are allowed", slice: discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: endpoints(1000)}},
		"NoType":   {reason: "a type is needed", slice: slice("", "x"), want: []string{`addressType: Required value`}},
		"OtherType": {
			reason: "what the addresses of another type look like is not known", slice: slice("MAC", "x"),
			want: []string{`addressType: Unsupported value: "MAC": supported values: "FQDN", "IPv4", "IPv6"`},
		},
		"WrongAddresses": {
			reason: "an address is one, of the type, and reaches one machine",
			slice:  slice("IPv4", "x", "010.0.0.1", "2001:db8::1", "127.0.0.1", "0.0.0.0"),
			want: []string{
				`endpoints[0].addresses[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				`endpoints[0].addresses[1]: Invalid value: "010.0.0.1": must not have leading 0s`,
				`endpoints[0].addresses[2]: Invalid value: "2001:db8::1": must be an IPv4 address`,
				`endpoints[0].addresses[3]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
				`endpoints[0].addresses[4]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`,
			},
		},
		"WrongIPv6": {
			reason: "and the same for IPv6", slice: slice("IPv6", "10.0.0.1", "fe80::1", "ff02::1"),
			want: []string{
				`endpoints[0].addresses[0]: Invalid value: "10.0.0.1": must be an IPv6 address`,
				`endpoints[0].addresses[1]: Invalid value: "fe80::1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
				`endpoints[0].addresses[2]: Invalid value: "ff02::1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`,
			},
		},
		"WrongName": {
			reason: "a name has a domain", slice: slice("FQDN", "a"),
			want: []string{`endpoints[0].addresses[0]: Invalid value: "a": should be a domain with at least two segments separated by dots`},
		},
		"NoAddress": {
			reason: "an endpoint has an address", slice: slice("IPv4"),
			want: []string{`endpoints[0].addresses: Required value: must contain at least 1 address`},
		},
		"ManyAddresses": {
			reason: "a hundred at most", slice: slice("FQDN", strings.Split(strings.Repeat("a.b ", 101)[:101*4-1], " ")...),
			want: []string{`endpoints[0].addresses: Too many: 101: must have at most 100 items`},
		},
		"ManyEndpoints": {
			reason: "a thousand at most", slice: discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: endpoints(1001)},
			want: []string{`endpoints: Too many: 1001: must have at most 1000 items`},
		},
		"ManyPorts": {
			reason: "twenty thousand at most", slice: discoveryv1.EndpointSlice{AddressType: "IPv4", Ports: make([]discoveryv1.EndpointPort, 20001)},
			want: []string{`ports: Too many: 20001: must have at most 20000 items`},
		},
		"Ports": {
			reason: "names of ports are labels, each there once",
			slice: discoveryv1.EndpointSlice{AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{
				{Name: ptr.To("a"), Port: ptr.To[int32](80)}, {Name: ptr.To("a")}, {Name: ptr.To("a_b"), Protocol: ptr.To[corev1.Protocol]("IP")},
			}},
			want: []string{
				`ports[1].name: Duplicate value: "a"`,
				`ports[2].name: Invalid value: "a_b": ` + labelRule,
				`ports[2].protocol: Unsupported value: "IP": supported values: "SCTP", "TCP", "UDP"`,
			},
		},
		"Hints": {
			reason: "hints name zones and nodes, each once",
			slice: discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.0.0.1"}, Hostname: ptr.To("A"),
				Hints: &discoveryv1.EndpointHints{
					ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}, {Name: "n"}},
				},
			}}},
			want: []string{
				`endpoints[0].hostname: Invalid value: "A": ` + labelRule,
				`endpoints[0].hints.forZones[1].name: Duplicate value: "a"`,
				`endpoints[0].hints.forNodes[1].name: Duplicate value: "n"`,
			},
		},
		"ManyHints": {
			reason: "eight at most",
			slice: discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.0.0.1"}, Hints: &discoveryv1.EndpointHints{ForZones: make([]discoveryv1.ForZone, 9)},
			}}},
			want: []string{`endpoints[0].hints.forZones: Too many: 9: must have at most 8 items`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defaultPorts(&tc.slice)
			var got []string
			for _, err := range validate(t.Context(), &tc.slice) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func endpoints(n int) []discoveryv1.Endpoint {
	all := make([]discoveryv1.Endpoint, n)
	for i := range all {
		all[i].Addresses = []string{"10.0.0.1"}
	}
	return all
}

func TestRow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		slice  discoveryv1.EndpointSlice
		want   []any
	}{
		"Empty": {"nothing is there", discoveryv1.EndpointSlice{AddressType: "IPv4"}, []any{"IPv4", "<unset>", "<unset>"}},
		"Few": {"a port without a number has a name, or is any", discoveryv1.EndpointSlice{
			AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}, {Name: ptr.To("a")}, {}}, Endpoints: endpoints(1),
		}, []any{"IPv4", "80,a,*", "10.0.0.1"}},
		"Many": {"three are shown", discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: endpoints(5)}, []any{"IPv4", "<unset>", "10.0.0.1,10.0.0.1,10.0.0.1 + 2 more..."}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, row(&tc.slice)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	fqdn, upper := slice("FQDN", "a.example.org"), slice("IPv6", "2001:DB8::1")
	for _, tc := range []struct {
		slice discoveryv1.EndpointSlice
		want  string
	}{
		{fqdn, "spec.addressType: FQDN endpoints are deprecated"},
		{upper, `endpoints[0].addresses[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")`},
	} {
		if diff := cmp.Diff([]string{tc.want}, warnings(t.Context(), &tc.slice)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
