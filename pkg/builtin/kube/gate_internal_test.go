package kube

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

func TestDrop(t *testing.T) {
	t.Parallel()
	one := func(user, mode bool) *corev1.PodSpec {
		s := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v"}, {Name: "e"}}}
		s.Volumes[0].Secret, s.Volumes[1].EmptyDir = &corev1.SecretVolumeSource{SecretName: "s"}, &corev1.EmptyDirVolumeSource{}
		if user {
			s.Volumes[0].Secret.DefaultUser = new(int64(1))
		}
		if mode {
			s.Volumes[1].EmptyDir.Mode = new(int32(0o700))
		}
		return s
	}
	cases := map[string]struct {
		reason         string
		obj, old, want *corev1.PodSpec
	}{
		"nothing":  {"there is nothing to drop", one(false, false), one(true, true), one(false, false)},
		"new":      {"features are off", one(true, true), nil, one(false, false)},
		"updated":  {"they stay off", one(true, true), one(false, false), one(false, false)},
		"in use":   {"what is stored stays", one(true, true), one(true, true), one(true, true)},
		"one used": {"each feature is by itself", one(true, true), one(false, true), one(false, true)},
		"none":     {"a template may be missing", nil, one(true, true), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drop(tc.obj, tc.old, podSpecGates())
			if diff := cmp.Diff(tc.want, tc.obj); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPodFeatures fills each field of each feature, and looks for what is left.
func TestPodFeatures(t *testing.T) {
	t.Parallel()
	user, protocol, mode := new(int64(1)), new(corev1.HTTPProtocolHTTP2), new(corev1.GRPCProbeMode("TLS"))
	keys := []corev1.KeyToPath{{Key: "k", User: user}}
	files := []corev1.DownwardAPIVolumeFile{{Path: "p", User: user}}
	http := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Protocol: protocol}}
	container := corev1.Container{
		VolumeMounts:   []corev1.VolumeMount{{Name: "v", BindMountOptions: []string{"noexec"}}},
		LivenessProbe:  &corev1.Probe{ProbeHandler: http},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Mode: mode}}},
		Lifecycle: &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Protocol: protocol}},
			PreStop:   &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Protocol: protocol}},
		},
	}
	s := &corev1.PodSpec{
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{DefaultUser: user, Items: keys}}},
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{DefaultUser: user, Items: keys}}},
			{VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultUser: user, Items: files}}},
			{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: new(int32(1))}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultUser: user, Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{Items: keys}},
					{ConfigMap: &corev1.ConfigMapProjection{Items: keys}},
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: files}},
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{User: user}},
					{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{User: user}},
					{PodCertificate: &corev1.PodCertificateProjection{User: user}},
				},
			}}},
		},
		Containers:     []corev1.Container{*container.DeepCopy()},
		InitContainers: []corev1.Container{*container.DeepCopy()},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon(*container.DeepCopy())},
		},
		EvictionResponders: []corev1.EvictionResponder{{Name: "example.com/a"}},
	}
	s = s.DeepCopy() // the parts are shared until here
	drop(s, nil, podSpecGates())
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"user", "defaultUser", "mode", "bindMountOptions", "protocol", "evictionResponders"} {
		if strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("%s is left: %s", name, text)
		}
	}
}

func TestDeviceFeatures(t *testing.T) {
	t.Parallel()
	s := &resourcev1.ResourceSlice{}
	s.Spec.PartitionTypeAttribute = new(resourcev1.FullyQualifiedName("example.com/a"))
	s.Spec.SkipNodeOperations = []resourcev1.SkipNodeOperation{"a"}
	s.Spec.Devices = []resourcev1.Device{{
		NodeAllocatableResources: map[corev1.ResourceName]resourcev1.NodeAllocatableResource{"cpu": {}},
		ConsumesCounters:         []resourcev1.DeviceCounterConsumption{{CounterSet: "c", CompatibilityGroups: []string{"a"}}},
	}}
	want := &resourcev1.ResourceSlice{}
	want.Spec.Devices = []resourcev1.Device{{ConsumesCounters: []resourcev1.DeviceCounterConsumption{{CounterSet: "c"}}}}
	drop(s, nil, sliceGates())
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("fields of features that are off go (-want +got):\n%s", diff)
	}
	derived := []resourcev1.DeviceDerivedAttribute{{Name: "example.com/a", Expression: "1"}}
	c := &resourcev1.ResourceClaim{}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{
		{Exactly: &resourcev1.ExactDeviceRequest{DerivedAttributes: derived}},
		{FirstAvailable: []resourcev1.DeviceSubRequest{{DerivedAttributes: derived}}},
	}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{SkipNodeOperations: []resourcev1.SkipNodeOperation{"a"}}},
	}}
	drop(c, nil, deviceClaimGates())
	used := map[string][]reflect.Value{}
	deviceClaimGates().find(reflect.ValueOf(c), used)
	if len(used) > 0 {
		t.Errorf("fields of features that are off go: %v", used)
	}
}

// TestGates compares the names of fields with the types, whose fields can be empty.
func TestGates(t *testing.T) {
	t.Parallel()
	for _, g := range []gates{podGates(), nodeGates(), volumeClaimGates(), csiNodeGates(), sliceGates(), deviceClaimGates()} {
		for in, fields := range g {
			for feature, name := range fields {
				f, ok := in.FieldByName(name)
				if kind := f.Type; !ok || kind.Kind() != reflect.Pointer && kind.Kind() != reflect.Slice && kind.Kind() != reflect.Map {
					t.Errorf("%s: %s.%s is missing, or never empty", feature, in, name)
				}
			}
		}
	}
}
