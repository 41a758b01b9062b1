package kube_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var (
	podsV1       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	claimsV1     = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	daemonSets   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	cronJobs     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	ingresses    = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	policies     = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
	budgets      = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	deviceSlices = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}
	taintRules   = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"}
	moves        = schema.GroupVersionResource{Group: "storagemigration.k8s.io", Version: "v1", Resource: "storageversionmigrations"}
	claims       = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}
	autoscalers  = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
)

func kindOf(gvr schema.GroupVersionResource) string {
	return strings.Fields(served[gvr.GroupResource().String()])[1]
}

// try creates an object of the given fields in a dry run.
func try(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, body string) (*unstructured.Unstructured, error) {
	t.Helper()
	return create(t, config, gvr, body, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// tryCluster is try for a resource without namespaces.
func tryCluster(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, body string) (*unstructured.Unstructured, error) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: decode(t, body)}
	object.SetGroupVersionKind(gvr.GroupVersion().WithKind(kindOf(gvr)))
	object.SetName("dry")
	return client.Resource(gvr).Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// create creates an object of the given fields, called a, in the namespace
// rules, or dry when it is not to stay.
func create(
	t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, body string, options metav1.CreateOptions,
) (*unstructured.Unstructured, error) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: decode(t, body)}
	object.SetGroupVersionKind(gvr.GroupVersion().WithKind(kindOf(gvr)))
	object.SetName("a")
	namespace := "rules"
	if options.DryRun != nil {
		namespace = "dry"
	}
	return client.Resource(gvr).Namespace(namespace).Create(t.Context(), object, options)
}

const (
	podDefaults = `"dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30`
	container   = `"name":"c","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"`
	filled      = `{"containers":[{"image":"i","imagePullPolicy":"Always",` + container + `}],"restartPolicy":"Always",` + podDefaults + `}`
	filledOnce  = `{"containers":[{"image":"i","imagePullPolicy":"Always",` + container + `}],"restartPolicy":"Never",` + podDefaults + `}`
	filledT     = `{"metadata":{"labels":{"a":"b"}},"spec":` + filled + `}`
)

func defaults(t *testing.T, config *rest.Config) {
	cases := map[string]struct {
		reason string
		gvr    schema.GroupVersionResource
		body   string
		want   string // its spec
	}{
		"Deployment": {
			reason: "one replica, replaced a quarter at a time", gvr: deployments, body: minimal["deployments.apps"],
			want: `{"replicas":1,"revisionHistoryLimit":10,"progressDeadlineSeconds":600,"selector":{"matchLabels":{"a":"b"}},
				"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},"template":` + filledT + `}`,
		},
		"Recreate": {
			reason: "only a rolling update has numbers", gvr: deployments,
			body: `{"spec":{"replicas":0,"strategy":{"type":"Recreate"},"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`,
			want: `{"replicas":0,"revisionHistoryLimit":10,"progressDeadlineSeconds":600,"selector":{"matchLabels":{"a":"b"}},
				"strategy":{"type":"Recreate"},"template":` + filledT + `}`,
		},
		"StatefulSet": {
			reason: "in order, claims kept", gvr: statefulSets,
			body: `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `,"volumeClaimTemplates":[{"metadata":{"name":"d"},
				"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`,
			want: `{"replicas":1,"revisionHistoryLimit":10,"podManagementPolicy":"OrderedReady","serviceName":"",
				"selector":{"matchLabels":{"a":"b"}},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}},
				"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"},"template":` + filledT + `,
				"volumeClaimTemplates":[{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"d"},
				"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"volumeMode":"Filesystem"},
				"status":{"phase":"Pending"}}]}`,
		},
		"DaemonSet": {
			reason: "one node at a time", gvr: daemonSets, body: minimal["daemonsets.apps"],
			want: `{"revisionHistoryLimit":10,"selector":{"matchLabels":{"a":"b"}},
				"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}},"template":` + filledT + `}`,
		},
		"CronJob": {
			reason: "three successes and one failure are kept", gvr: cronJobs, body: minimal["cronjobs.batch"],
			want: `{"schedule":"@daily","concurrencyPolicy":"Allow","suspend":false,"successfulJobsHistoryLimit":3,"failedJobsHistoryLimit":1,
				"jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"spec":` + filledOnce + `}}}}`,
		},
		"Pod": {
			reason: "what a template leaves open as well", gvr: podsV1, body: `{"spec":{"serviceAccountName":"s","hostNetwork":true,
				"volumes":[{"name":"e"},{"name":"s","secret":{"secretName":"x"}},{"name":"p","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}],
				"containers":[{"name":"c","image":"r:5000/i:v1","resources":{"limits":{"cpu":"1"}},"ports":[{"containerPort":80}],
				"env":[{"name":"E","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"livenessProbe":{"httpGet":{"port":80}}}]}}`,
			want: `{"serviceAccountName":"s","serviceAccount":"s","hostNetwork":true,"enableServiceLinks":true,"restartPolicy":"Always",` + podDefaults + `,
				"volumes":[{"name":"e","emptyDir":{}},{"name":"s","secret":{"secretName":"x","defaultMode":420}},
				{"name":"p","projected":{"defaultMode":420,"sources":[{"serviceAccountToken":{"path":"t","expirationSeconds":3600}}]}}],
				"containers":[{"name":"c","image":"r:5000/i:v1","imagePullPolicy":"IfNotPresent","terminationMessagePath":"/dev/termination-log",
				"terminationMessagePolicy":"File","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}},
				"ports":[{"containerPort":80,"hostPort":80,"protocol":"TCP"}],
				"env":[{"name":"E","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}],
				"livenessProbe":{"httpGet":{"port":80,"path":"/","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}}]}`,
		},
		"PersistentVolumeClaim": {
			reason: "a file system", gvr: claimsV1, body: minimal["persistentvolumeclaims"],
			want: `{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"1Gi"}},"volumeMode":"Filesystem"}`,
		},
		"NetworkPolicy": {
			reason: "the types follow from the rules", gvr: policies,
			body: `{"spec":{"podSelector":{},"egress":[{"ports":[{"port":53}]}]}}`,
			want: `{"podSelector":{},"egress":[{"ports":[{"port":53,"protocol":"TCP"}]}],"policyTypes":["Ingress","Egress"]}`,
		},
		"HorizontalPodAutoscaler": {
			reason: "80 % of the CPU, and all rules where there is one", gvr: autoscalers,
			body: `{"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a"},"maxReplicas":3,"behavior":{"scaleDown":{"stabilizationWindowSeconds":5}}}}`,
			want: `{"scaleTargetRef":{"kind":"Deployment","name":"a"},"minReplicas":1,"maxReplicas":3,
				"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}],
				"behavior":{"scaleUp":{"selectPolicy":"Max","stabilizationWindowSeconds":0,"policies":[{"type":"Pods","value":4,"periodSeconds":15},
				{"type":"Percent","value":100,"periodSeconds":15}]},"scaleDown":{"selectPolicy":"Max","stabilizationWindowSeconds":5,
				"policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := try(t, config, tc.gvr, tc.body)
			if err != nil {
				t.Fatal(err)
			}
			// Numbers are compared as JSON has them.
			text, err := json.Marshal(got.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, tc.want), decode(t, string(text))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	t.Run("Job", func(t *testing.T) {
		got, err := try(t, config, jobs, minimal["jobs.batch"])
		if err != nil {
			t.Fatal(err)
		}
		spec := got.Object["spec"].(map[string]any)
		for field, want := range map[string]any{
			"parallelism": int64(1), "completions": int64(1), "backoffLimit": int64(6), "completionMode": "NonIndexed",
			"suspend": false, "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed",
		} {
			if spec[field] != want {
				t.Errorf("spec.%s of a job: got %v, want %v", field, spec[field], want)
			}
		}
		labels, _, _ := unstructured.NestedStringMap(spec, "template", "metadata", "labels")
		if labels["batch.kubernetes.io/job-name"] != "a" || labels["batch.kubernetes.io/controller-uid"] == "" {
			t.Errorf("a job selects its own pods: got labels %v", labels)
		}
	})
}

// manyRequests are one more than a ResourceClaim may have.
func manyRequests() string {
	var all []string
	for i := range 33 {
		all = append(all, fmt.Sprintf(`{"name":"r%d","exactly":{"deviceClassName":"c"}}`, i))
	}
	return strings.Join(all, ",")
}

func invalid(t *testing.T, config *rest.Config) {
	cases := map[string]struct {
		gvr        schema.GroupVersionResource
		body, want string
	}{
		"no selector": {deployments, `{"spec":{"template":` + template + `}}`, "spec.selector: Required value"},
		"other labels": {
			deployments, `{"spec":{"selector":{"matchLabels":{"a":"c"}},"template":` + template + `}}`,
			"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
		},
		"negative":      {deployments, `{"spec":{"replicas":-1,"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
		"no containers": {podsV1, `{"spec":{"containers":[]}}`, "spec.containers: Required value"},
		"no image":      {podsV1, `{"spec":{"containers":[{"name":"c"}]}}`, "spec.containers[0].image: Required value"},
		"twice":         {podsV1, `{"spec":{"containers":[{"name":"c","image":"i"},{"name":"c","image":"i"}]}}`, `spec.containers[1].name: Duplicate value: "c"`},
		"no volume":     {podsV1, `{"spec":{"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}`, `spec.containers[0].volumeMounts[0].name: Not found: "v"`},
		"always":        {jobs, `{"spec":{"template":{"spec":` + pod + `}}}`, `spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
		"no schedule":   {cronJobs, `{"spec":{"jobTemplate":{"spec":{"template":{"spec":` + once + `}}}}}`, "spec.schedule: Required value"},
		"no backend":    {ingresses, `{"spec":{}}`, "either `defaultBackend` or `rules` must be specified"},
		"no path type":  {ingresses, `{"spec":{"rules":[{"http":{"paths":[{"path":"/","backend":{"service":{"name":"a","port":{"number":80}}}}]}}]}}`, "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"},
		"both":          {budgets, `{"spec":{"minAvailable":1,"maxUnavailable":1}}`, "minAvailable and maxUnavailable cannot be both set"},
		"no size":       {claimsV1, `{"spec":{"accessModes":["ReadWriteOnce"]}}`, "spec.resources[storage]: Required value"},
		// Rules that nothing but the published types declare.
		"no CIDR":           {policies, `{"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{}}]}]}}`, "spec.ingress[0].from[0].ipBlock.cidr: Required value"},
		"too many requests": {claims, `{"spec":{"devices":{"requests":[` + manyRequests() + `]}}}`, "spec.devices.requests: Too many: 33: must have at most 32 items"},
		"no minimum": {
			autoscalers, `{"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a"},"minReplicas":0,"maxReplicas":3}}`,
			"spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
		},
		"scheduled job":  {jobs, `{"spec":{"scheduling":{},"template":{"spec":` + once + `}}}`, "spec.scheduling: Forbidden"},
		"scheduled cron": {cronJobs, `{"spec":{"schedule":"@daily","jobTemplate":{"spec":{"scheduling":{},"template":{"spec":` + once + `}}}}}`, "spec.jobTemplate.spec.scheduling: Forbidden"},
		"no maximum":     {autoscalers, `{"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a"}}}`, "spec.maxReplicas: Invalid value: 0: must be greater than 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := try(t, config, tc.gvr, tc.body)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
	t.Run("mounted claim", func(t *testing.T) {
		body := `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i",
			"volumeMounts":[{"name":"d","mountPath":"/d"}]}]}},"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{}}]}}`
		if _, err := try(t, config, statefulSets, body); err != nil {
			t.Errorf("containers mount the claims of a stateful set: %v", err)
		}
	})
}

func immutable(t *testing.T, config *rest.Config) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		gvr               schema.GroupVersionResource
		good, patch, want string
	}{
		"deployments": {deployments, `{"spec":{"replicas":2}}`, `{"spec":{"selector":{"matchLabels":{"a":"b","c":"d"}},"template":{"metadata":{"labels":{"c":"d"}}}}}`, "spec.selector: Invalid value"},
		"stateful":    {statefulSets, `{"spec":{"replicas":2}}`, `{"spec":{"serviceName":"s"}}`, "updates to statefulset spec for fields other than"},
		"pods":        {podsV1, `{"spec":{"containers":[{"name":"c","image":"j"}]}}`, `{"spec":{"nodeName":"n"}}`, "pod updates may not change fields other than"},
		"jobs":        {jobs, `{"spec":{"parallelism":2}}`, `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`, "field is immutable"},
		"claims":      {claimsV1, `{"spec":{"volumeName":"v"}}`, `{"spec":{"accessModes":["ReadWriteOnce"]}}`, "spec is immutable after creation"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := create(t, config, tc.gvr, minimal[tc.gvr.GroupResource().String()], metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			resource := client.Resource(tc.gvr).Namespace("rules")
			if _, err := resource.Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(tc.good), metav1.PatchOptions{}); err != nil {
				t.Errorf("%s is accepted: got %v", tc.good, err)
			}
			_, err := resource.Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(tc.patch), metav1.PatchOptions{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}
