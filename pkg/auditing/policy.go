package auditing

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/apis/audit/validation"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Default is the policy of parts that have none. It records, when a request is
// answered, at level Metadata (user, verb, object, time and outcome; no body):
// every write of an object and of a sub-resource (create, update, patch, delete,
// deletecollection), reviews such as SubjectAccessReviews included, every read of
// Secrets (get, list, watch) but those of the server itself, and every request for a
// backup, which has all Secrets in it or all that an EtcdStorage has, and for the maintenance of the storage.
//
// It does not record other reads and watches, health checks, discovery, OpenAPI and
// the renewal of Leases.
func Default() *auditv1.Policy {
	reads := []string{"get", "list", "watch"}
	return &auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		OmitStages: []auditv1.Stage{auditv1.StageRequestReceived},
		Rules: []auditv1.PolicyRule{
			{Level: auditv1.LevelNone, NonResourceURLs: []string{
				"/healthz*", "/livez*", "/readyz*", "/api*", "/openapi*", "/version*",
			}},
			{Level: auditv1.LevelMetadata, NonResourceURLs: []string{"/backup", "/debug/storage"}}, // backup.Path, insight.MaintenancePath
			{Level: auditv1.LevelNone, Resources: []auditv1.GroupResources{
				{Group: "coordination.k8s.io", Resources: []string{"leases"}},
			}},
			// The server's own clients. Another of both names may do everything anyway.
			{
				Level: auditv1.LevelNone, Verbs: reads,
				Users: []string{user.APIServerUser}, UserGroups: []string{user.SystemPrivilegedGroup},
			},
			{
				Level: auditv1.LevelMetadata, Verbs: reads,
				Resources: []auditv1.GroupResources{
					{Resources: []string{"secrets", "secrets/*"}},
					{Group: "storage.sailplane.dev", Resources: []string{"etcdstorages/backup"}}, // package storageapi
				},
			},
			{Level: auditv1.LevelMetadata, Verbs: []string{"create", "update", "patch", "delete", "deletecollection"}},
		},
	}
}

// evaluator evaluates a policy that is written in Go, or Default.
func evaluator(given *auditv1.Policy) (audit.PolicyRuleEvaluator, error) {
	if given == nil {
		given = Default()
	}
	p := &auditinternal.Policy{}
	if err := auditv1.Convert_v1_Policy_To_audit_Policy(given.DeepCopy(), p, nil); err != nil {
		return nil, err
	}
	if err := validate(p); err != nil {
		return nil, err
	}
	return policy.NewPolicyRuleEvaluator(p), nil
}

// parse reads the content of a file strictly: the reader of the published package
// accepts unknown fields, and so records less or more than its author meant.
func parse(content []byte) (*auditv1.Policy, error) {
	codecs := serializer.NewCodecFactory(audit.Scheme, serializer.EnableStrict)
	obj, kind, err := codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: want apiVersion %s, kind Policy", err, auditv1.SchemeGroupVersion)
	}
	p, ok := obj.(*auditv1.Policy)
	if !ok {
		return nil, fmt.Errorf("found %s, want apiVersion %s, kind Policy", kind, auditv1.SchemeGroupVersion)
	}
	return p, nil
}

// validate names every field that is wrong.
func validate(p *auditinternal.Policy) error {
	if len(p.Rules) == 0 {
		return errors.New("rules: is empty, so nothing would be recorded: add a rule, such as {level: Metadata}")
	}
	return validation.ValidatePolicy(p).ToAggregate()
}
