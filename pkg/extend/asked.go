package extend

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/path"
	plugin "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/extend/v1alpha1"
)

// withoutReviews is how long a host without CreateReviews is not asked for one again.
const withoutReviews = time.Minute

// asked asks the host what somebody may do.
type asked struct {
	client  kubernetes.Interface
	health  authorizer.Authorizer
	rights  atomic.Pointer[plugin.WebhookAuthorizer] // nil: the server is starting
	without atomic.Int64                             // when the host had no CreateReviews, in nanoseconds
}

// open prepares the questions. It asks nothing yet.
func (a *asked) open(client kubernetes.Interface) error {
	health, err := path.NewAuthorizer([]string{"/healthz", "/livez", "/readyz"}) // the host looks there
	if err != nil {
		return err
	}
	rights, err := plugin.NewFromInterface(client.AuthorizationV1(), answersTTL, refusalsTTL, *plugin.DefaultRetryBackoff(),
		authorizer.DecisionNoOpinion, metrics.NoopAuthorizerMetrics{}, cel.NewDefaultCompiler())
	if err != nil {
		return err
	}
	a.client, a.health = client, health
	a.rights.Store(rights)
	return nil
}

// Authorize implements authorizer.Authorizer.
func (a *asked) Authorize(ctx context.Context, r authorizer.Attributes) (authorizer.Decision, string, error) {
	rights := a.rights.Load()
	if rights == nil {
		return authorizer.DecisionNoOpinion, "the server is starting", nil
	}
	if decision, reason, err := a.health.Authorize(ctx, r); decision != authorizer.DecisionNoOpinion {
		return decision, reason, err
	}
	ctx, end := context.WithTimeout(ctx, hostTimeout)
	defer end()
	return rights.Authorize(ctx, r)
}

// admits is the admission of new objects: the host is asked whether they may be created.
type admits struct{ *asked }

// Handles implements admission.Interface.
func (admits) Handles(o admission.Operation) bool { return o == admission.Create }

// Validate implements admission.ValidationInterface. What the server itself creates, such as
// Leases, is its own matter.
func (a admits) Validate(ctx context.Context, what admission.Attributes, _ admission.ObjectInterfaces) error {
	who := what.GetUserInfo()
	if what.GetNamespace() == "" || what.GetSubresource() != "" || who == nil || who.GetName() == user.APIServerUser {
		return nil
	}
	if a.rights.Load() == nil {
		return apierrors.NewServiceUnavailable("the server is starting")
	}
	ctx, end := context.WithTimeout(ctx, hostTimeout)
	defer end()
	if time.Since(time.Unix(0, a.without.Load())) > withoutReviews {
		review, err := a.ask(ctx, reviewOf(what, who))
		switch {
		case apierrors.IsNotFound(err):
			a.without.Store(time.Now().UnixNano())
		case err != nil:
			return unanswered(err)
		case review.Status.Error != nil:
			return &apierrors.StatusError{ErrStatus: *review.Status.Error}
		case !review.Status.Allowed:
			return admission.NewForbidden(what, errors.New("the host does not allow it"))
		default:
			return nil
		}
	}
	return a.lives(ctx, what)
}

// ask has the host answer a review. The client knows no types of the group.
func (a *asked) ask(ctx context.Context, review *v1alpha1.CreateReview) (*v1alpha1.CreateReview, error) {
	content, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	gv := v1alpha1.SchemeGroupVersion()
	answer, err := a.client.AuthorizationV1().RESTClient().Post().AbsPath("/apis", gv.Group, gv.Version, "createreviews").
		SetHeader("Content-Type", runtime.ContentTypeJSON).SetHeader("Accept", runtime.ContentTypeJSON).Body(content).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	answered := &v1alpha1.CreateReview{}
	return answered, json.Unmarshal(answer, answered)
}

// lives asks the host for the namespace.
func (a admits) lives(ctx context.Context, what admission.Attributes) error {
	ns, err := a.client.CoreV1().Namespaces().Get(ctx, what.GetNamespace(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		return unanswered(err)
	case ns.DeletionTimestamp == nil:
		return nil
	}
	refused := apierrors.NewForbidden(what.GetResource().GroupResource(), what.GetName(),
		errors.New("unable to create new content in namespace "+ns.Name+" because it is being terminated"))
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: "NamespaceTerminating", Message: "namespace " + ns.Name + " is being terminated", Field: "metadata.namespace",
	})
	return refused
}

// unanswered is what the client is told when the host did not answer, or will not tell.
func unanswered(err error) error {
	if apierrors.IsTooManyRequests(err) {
		return err
	}
	return apierrors.NewServiceUnavailable("the host of this server did not say whether the object may be created: " + err.Error())
}

func reviewOf(what admission.Attributes, who user.Info) *v1alpha1.CreateReview {
	gvr := what.GetResource()
	return &v1alpha1.CreateReview{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "CreateReview"},
		Spec: v1alpha1.CreateReviewSpec{
			User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: who.GetExtra(),
			Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource,
			Namespace: what.GetNamespace(), Name: what.GetName(), DryRun: what.IsDryRun(),
		},
	}
}
