package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestLint: helm finds nothing to complain about.
func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range samples(t) {
		if _, err := helm(t, os.DevNull, "lint", "--strict", folder(t), "--values", values); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// schema is what the tests read of a JSON schema.
type schema struct {
	Ref                  string             `json:"$ref"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties any                `json:"additionalProperties"`
	Definitions          map[string]*schema `json:"definitions"`
}

// schemaOf reads the schema of a chart, with its definitions where they are referred to.
func schemaOf(t *testing.T, folder string) *schema {
	t.Helper()
	var root schema
	if err := json.Unmarshal([]byte(read(t, folder, "values.schema.json")), &root); err != nil {
		t.Fatal(err)
	}
	var resolve func(s *schema)
	resolve = func(s *schema) {
		for name, property := range s.Properties {
			if ref, is := strings.CutPrefix(property.Ref, "#/definitions/"); is {
				s.Properties[name] = root.Definitions[ref]
			}
			resolve(s.Properties[name])
		}
	}
	resolve(&root)
	return &root
}

// filledIn are the fields of the configuration file that the chart sets, so that values may not.
func filledIn() []string {
	return []string{
		"config.listen", "config.advertise", "config.dataDir", "config.serving.certFile", "config.serving.keyFile", "config.serving.drain",
	}
}

// TestSchema: the schema has exactly the values of values.yaml, below config exactly the
// fields of the configuration file that the chart does not set, and refuses every other.
func TestSchema(t *testing.T) {
	t.Parallel()
	values := valuesOf(t, filepath.Join(folder(t), "values.yaml"))
	values["config"] = defaults(t)
	values["global"] = nil // which helm gives to a chart that another one depends on
	root := schemaOf(t, folder(t))
	var closed []string // objects that know their fields
	var compare func(path string, value any, s *schema)
	compare = func(path string, value any, s *schema) {
		fields, is := value.(map[string]any)
		if !is || s.Properties == nil {
			return
		}
		closed = append(closed, path)
		if s.AdditionalProperties != false {
			t.Errorf("%s: the schema lets everything pass", path)
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			property, is := s.Properties[name]
			set := slices.Contains(filledIn(), at)
			if is == set {
				t.Errorf("%s: in the schema: %t, want %t", at, is, !set)
			}
			if is {
				compare(at, fields[name], property)
			}
		}
		for name := range s.Properties {
			if _, is := fields[name]; !is {
				t.Errorf("%s.%s is in the schema, and nowhere else", path, name)
			}
		}
	}
	compare("", values, root)
	if len(closed) < 30 {
		t.Errorf("the schema knows the fields of %d objects only: %v", len(closed), closed)
	}
	for _, path := range closed {
		misspelt := strings.TrimPrefix(path+".misspelt", ".")
		if _, err := template(t, folder(t), "--set="+misspelt+"=1"); err == nil || !strings.Contains(err.Error(), "'misspelt' not allowed") {
			t.Errorf("%s: %v", misspelt, err)
		}
	}
}

// TestRefused: values that cannot be right are refused before anything is installed, with a
// message that says what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"replicas=2":  "need config.storage.url of a database or an etcd cluster",
		"replicas=-1": "minimum",
		"replicas=2,config.storage.url=postgres://a@b/c":                                                      "need sharing.existingSecret",
		"replicas=2,config.storage.url=postgres://a@b/c,sharing.existingSecret=a,persistence.existingClaim=a": "cannot have one claim",
		"config.listen=:443":                                "'listen' not allowed",
		"config.kind=Service":                               "must be 'Server'",
		"config.garbageCollection=sometimes":                "want boolean",
		"config.limits.burst=many":                          "want integer",
		"config.authentication.anonymousPaths={}":           "needs /livez and /readyz",
		"config.authentication.anonymousPaths={/livez}":     "needs /livez and /readyz",
		"service.port=0":                                    "minimum",
		"service.type=ExternalName":                         "value must be one of",
		"persistence.size=large":                            "does not match pattern",
		"persistence.accessModes={ReadWriteMany}":           "value must be one of",
		"image.digest=sha256:abc":                           "does not match pattern",
		"tls.certManager.enabled=true":                      "give the name of an issuer in issuerRef, or selfSigned",
		"tls.certManager.enabled=true,tls.existingSecret=a": "not both",
		"tls.certManager.enabled=true,tls.certManager.selfSigned=true,tls.certManager.issuerRef.name=a": "not both",
		"backup.schedule=@daily": "give the Secret with the kubeconfig",
		"backup.schedule=@daily,backup.volume.emptyDir.medium=Memory": "give the Secret with the kubeconfig",
		"backup.schedule=@daily,backup.kubeconfigSecret.name=a":       "give the volume that keeps the backups",
		"backup.keep=-1":                         "minimum",
		"monitoring.serviceMonitor.enabled=true": "/metrics needs credentials",
		"monitoring.serviceMonitor.enabled=true,monitoring.serviceMonitor.tokenSecret.name=a,monitoring.serviceMonitor.clientCertificateSecret=b": "not both",
	} {
		if _, err := template(t, folder(t), "--set="+flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant an error with %q", flag, err, want)
		}
	}
	for _, flag := range []string{
		"config.authentication.anonymousPaths={*}",
		"config.authentication.anonymousPaths={/livez,/readyz,/metrics},monitoring.serviceMonitor.enabled=true",
		"global.region=here",
		"replicas=3,config.storage.url=etcd+https://a:2379,sharing.existingSecret=a",
		"replicas=3,config.storage.url=mysql://a@b/c,config.storage.shareKeyFile=/a",
		"backup.kubeconfigSecret.name=a",
	} {
		if _, err := template(t, folder(t), "--set="+flag); err != nil {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestEveryValueHasAnEffect: no value of values.yaml is there for nothing. Each is changed from its
// default to that of a sample, and back.
func TestEveryValueHasAnEffect(t *testing.T) {
	t.Parallel()
	everything := valuesOf(t, samples(t)["everything"])
	chart := valuesOf(t, filepath.Join(folder(t), "values.yaml"))
	// What wins over others in that sample, or must not be with them.
	besides := map[string]string{
		"nameOverride":                                      `{"nameOverride": "plane", "fullnameOverride": ""}`,
		"image.tag":                                         `{"image": {"tag": "v9.9.9", "digest": ""}}`,
		"tls.existingSecret":                                `{"tls": {"existingSecret": "a", "certManager": {"enabled": false}}}`,
		"tls.certManager.selfSigned":                        `{"tls": {"certManager": {"selfSigned": true, "issuerRef": {"name": ""}}}}`,
		"persistence.enabled":                               `{"persistence": {"enabled": false}}`,
		"persistence.existingClaim":                         `{"persistence": {"existingClaim": "a"}}`,
		"serviceAccount.create":                             `{"serviceAccount": {"create": false}}`,
		"podDisruptionBudget.maxUnavailable":                `{"podDisruptionBudget": {"maxUnavailable": 1}}`,
		"monitoring.serviceMonitor.clientCertificateSecret": `{"monitoring": {"serviceMonitor": {"clientCertificateSecret": "a", "tokenSecret": {"name": ""}}}}`,
		// Each without the other says nothing, or is refused.
		"backup.kubeconfigSecret.name":               `{"backup": {"kubeconfigSecret": {"name": "other"}}}`,
		"backup.volume":                              `{"backup": {"volume": {"persistentVolumeClaim": {"claimName": "other"}}}}`,
		"tls.certManager.issuerRef.name":             `{"tls": {"certManager": {"issuerRef": {"name": "other"}}}}`,
		"monitoring.serviceMonitor.tokenSecret.name": `{"monitoring": {"serviceMonitor": {"tokenSecret": {"name": "other"}}}}`,
	}
	with := func(values map[string]any) string {
		file := filepath.Join(t.TempDir(), "values.yaml")
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, string(text))
		out, err := template(t, folder(t), "--values", file)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	whole := with(everything)
	n := 0
	for path, value := range leaves("", chart) {
		n++
		changed := valuesOf(t, samples(t)["everything"])
		if text, is := besides[path]; is {
			var further map[string]any
			if err := yaml.Unmarshal([]byte(text), &further); err != nil {
				t.Fatal(err)
			}
			merge(changed, further)
		} else if !set(changed, path, value) {
			t.Errorf("%s: testdata/values/everything.yaml does not change it", path)
			continue
		}
		if with(changed) == whole {
			t.Errorf("%s: another value renders the same", path)
		}
	}
	if n < 70 {
		t.Errorf("there are %d values only: is values.yaml read right?", n)
	}
}

// TestValuesAreDescribed: a comment above each value says what it means.
func TestValuesAreDescribed(t *testing.T) {
	t.Parallel()
	for _, chart := range []string{folder(t), aggregated(t)} {
		described(t, filepath.Join(chart, "values.yaml"))
	}
}

func described(t *testing.T, file string) {
	t.Helper()
	value := regexp.MustCompile(`^ *\w+: \S`)
	before, free := "", false
	for i, line := range strings.Split(read(t, file), "\n") {
		if !strings.HasPrefix(line, " ") && line != "" { // fields of these are Kubernetes'
			free = strings.HasPrefix(line, "resources:") || strings.HasSuffix(line, "ecurityContext:")
		}
		if value.MatchString(line) && !free && !strings.HasPrefix(strings.TrimSpace(before), "#") {
			t.Errorf("%s:%d: %s: there is no comment above it", file, i+1, strings.TrimSpace(line))
		}
		before = line
	}
}

func valuesOf(t *testing.T, file string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(read(t, file)), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// leaves are the values that have no fields, by their paths. Free objects, which have fields that the
// chart does not know, are one value.
func leaves(path string, value any) map[string]any {
	fields, is := value.(map[string]any)
	free := []string{"resources.requests", "resources.limits", "podSecurityContext", "containerSecurityContext", "monitoring.dashboard.labels"}
	if !is || len(fields) == 0 || slices.Contains(free, path) {
		return map[string]any{path: value}
	}
	all := map[string]any{}
	for name, value := range fields {
		maps.Copy(all, leaves(strings.TrimPrefix(path+"."+name, "."), value))
	}
	return all
}

// set gives a value to a path, and says whether it had another.
func set(values map[string]any, path string, value any) bool {
	first, rest, more := strings.Cut(path, ".")
	if more {
		below, is := values[first].(map[string]any)
		return is && set(below, rest, value)
	}
	before, is := values[first]
	values[first] = value
	return is && fmt.Sprint(before) != fmt.Sprint(value)
}

// merge writes values over others.
func merge(to, from map[string]any) {
	for name, value := range from {
		below, is := value.(map[string]any)
		if there, both := to[name].(map[string]any); is && both {
			merge(there, below)
			continue
		}
		to[name] = value
	}
}
