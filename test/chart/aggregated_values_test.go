package chart

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// aggregated is the chart of aggregated servers.
func aggregated(t *testing.T) string {
	t.Helper()
	return filepath.Join(repository(t), "config", "charts", "aggregated-server")
}

// required are values that the chart of aggregated servers cannot know.
const required = "--set=image.repository=sample,etcdStorage.endpoint=https://api.example.com:6443," +
	"groups[0].name=wardle.example.com,groups[0].versions[0].name=v1alpha1"

// tried are values that the chart of aggregated servers is tried with, beside those that it needs.
func tried() map[string][]string {
	return map[string][]string{
		"defaults": nil,
		"everything": {
			"--set=fullnameOverride=" + strings.Repeat("a", 60) + ",replicas=3,image.digest=sha256:" + strings.Repeat("0", 64),
			"--set=image.pullSecrets[0].name=registry,command={/server},extraArgs={--v=2},env[0].name=A,env[0].value=b",
			"--set=groups[0].versions[1].name=v1beta1,groups[0].versions[1].versionPriority=20,groups[1].name=other.example.com," +
				"groups[1].groupPriorityMinimum=50,groups[1].versions[0].name=v1",
			"--set=etcdStorage.limits.keys=100000,etcdStorage.limits.bytes=64Mi,etcdStorage.limits.valueBytes=1048576," +
				"etcdStorage.limits.watches=10,etcdStorage.limits.writesPerSecond=5,etcdStorage.rotateAfter=24h,etcdStorage.keepData=true",
			"--set=tls.existingSecret=serving,tls.caBundle=PEM,kubeconfig.existingSecret=front,securePort=9443,service.port=8443",
			"--set=service.annotations.a=b,serviceAccount.annotations.a=b,rbac.rules[0].apiGroups={apps},rbac.rules[0].resources={deployments}," +
				"rbac.rules[0].verbs={get}",
			"--set=extraVolumes[0].name=tmp,extraVolumes[0].emptyDir.medium=Memory," +
				"extraVolumeMounts[0].name=tmp,extraVolumeMounts[0].mountPath=/tmp",
			"--set=podLabels.a=b,podAnnotations.a=b,nodeSelector.a=b,tolerations[0].key=a,tolerations[0].operator=Exists,priorityClassName=high",
		},
		"without roles": {"--set=rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine"},
	}
}

// renderAggregated renders the chart of aggregated servers.
func renderAggregated(t *testing.T, flags ...string) rendered {
	t.Helper()
	out, err := template(t, aggregated(t), append([]string{required}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, out)
}

// TestAggregatedSchema: the schema has exactly the values of values.yaml, and refuses every other.
func TestAggregatedSchema(t *testing.T) {
	t.Parallel()
	free := []string{"global", "initialDelaySeconds", "successThreshold"} // which helm and Kubernetes know
	var compare func(path string, values map[string]any, s *schema)
	compare = func(path string, values map[string]any, s *schema) {
		if len(values) == 0 || s.Properties == nil { // the fields are Kubernetes'
			return
		}
		got := slices.Sorted(maps.Keys(s.Properties))
		got = slices.DeleteFunc(got, func(name string) bool { return slices.Contains(free, name) })
		if diff := cmp.Diff(slices.Sorted(maps.Keys(values)), got); diff != "" || s.AdditionalProperties != false {
			t.Errorf("%q: others pass: %v, (-values +schema):\n%s", path, s.AdditionalProperties, diff)
		}
		for name, value := range values {
			if below, is := value.(map[string]any); is && s.Properties[name] != nil {
				compare(path+"."+name, below, s.Properties[name])
			}
		}
	}
	compare("", valuesOf(t, filepath.Join(aggregated(t), "values.yaml")), schemaOf(t, aggregated(t)))
}

// TestAggregatedRefused: values that cannot be right are refused, with a message that says what to do.
func TestAggregatedRefused(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"image.repository=":              "give the image of the aggregated server",
		"etcdStorage.endpoint=":          "give the URL of the Sailplane that lends the storage",
		"etcdStorage.endpoint=http://a":  "does not match pattern",
		"etcdStorage.limits.keys=0":      "minimum",
		"etcdStorage.limits.leases=1":    "'leases' not allowed",
		"groups=null":                    "give the API groups",
		"groups[0].versions=null":        "versions",
		"tls.existingSecret=a":           "give the authority of the certificate in Secret a",
		"tls.insecureSkipTLSVerify=true": "'insecureSkipTLSVerify' not allowed",
		"misspelt=1":                     "'misspelt' not allowed",
	} {
		if _, err := template(t, aggregated(t), required, "--set="+flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant an error with %q", flag, err, want)
		}
	}
}

// TestAggregatedNames: a name that is too long for an EtcdStorage is shortened, and stays another one than its neighbours'.
func TestAggregatedNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, last := range []string{"a", "b"} {
		name := renderAggregated(t, "--namespace="+strings.Repeat("n", 60)+last).of(t, "EtcdStorage").GetName()
		if len(name) > 63 || names[name] {
			t.Errorf("the EtcdStorage is called %s", name)
		}
		names[name] = true
	}
}
