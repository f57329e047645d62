// The reconciler: children are read from the cache and, by default, applied only if they differ.
package main

import (
	"context"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const fieldManager = "website-operator"

type reconciler struct {
	client client.Client
	// Whether children are applied though nothing has changed.
	always     bool
	reconciles atomic.Int64
}

func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.reconciles.Add(1)
	site := &Website{}
	if err := r.client.Get(ctx, request.NamespacedName, site); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ready, err := r.children(ctx, request.NamespacedName, site)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.status(ctx, site, ready)
}

// children returns how many replicas are ready.
func (r *reconciler) children(ctx context.Context, key client.ObjectKey, site *Website) (int32, error) {
	foundMap := &corev1.ConfigMap{}
	err := r.child(ctx, key, foundMap, func() bool {
		return isSame(site, configMap(site), foundMap) && equality.Semantic.DeepEqual(data(site), foundMap.Data)
	}, func() runtime.ApplyConfiguration { return applyConfigMap(site) })
	if err != nil {
		return 0, err
	}
	foundDeployment, appliedDeployment := &appsv1.Deployment{}, &applyapps.DeploymentApplyConfiguration{}
	err = r.child(ctx, key, foundDeployment, func() bool {
		desired := deployment(site)
		return isSame(site, desired, foundDeployment) && equality.Semantic.DeepDerivative(desired.Spec, foundDeployment.Spec)
	}, func() runtime.ApplyConfiguration {
		appliedDeployment = applyDeployment(site)
		return appliedDeployment
	})
	if err != nil {
		return 0, err
	}
	foundService := &corev1.Service{}
	err = r.child(ctx, key, foundService, func() bool {
		desired := service(site)
		return isSame(site, desired, foundService) && equality.Semantic.DeepDerivative(desired.Spec, foundService.Spec)
	}, func() runtime.ApplyConfiguration { return applyService(site) })
	// An apply leaves the server's answer in its configuration.
	if status := appliedDeployment.Status; status != nil && status.ReadyReplicas != nil {
		return *status.ReadyReplicas, err
	}
	return foundDeployment.Status.ReadyReplicas, err
}

// child reads a child into found, and applies it unless isAsDesired says that found needs no change.
func (r *reconciler) child(ctx context.Context, key client.ObjectKey, found client.Object, isAsDesired func() bool,
	desired func() runtime.ApplyConfiguration) error {
	if !r.always {
		err := r.client.Get(ctx, key, found)
		if err == nil && isAsDesired() {
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return r.client.Apply(ctx, desired(), client.FieldOwner(fieldManager), client.ForceOwnership)
}

// isSame compares what all children have: labels and owner.
func isSame(site *Website, desired, found client.Object) bool {
	return metav1.IsControlledBy(found, site) &&
		equality.Semantic.DeepDerivative(desired.GetLabels(), found.GetLabels())
}

// status writes the status if it differs.
func (r *reconciler) status(ctx context.Context, site *Website, ready int32) error {
	status := WebsiteStatus{}
	site.Status.DeepCopyInto(&status)
	status.ReadyReplicas = ready
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Applied", ObservedGeneration: site.Generation,
	})
	if equality.Semantic.DeepEqual(site.Status, status) {
		return nil
	}
	before := site.DeepCopy()
	site.Status = status
	return r.client.Status().Patch(ctx, site, client.MergeFrom(before), client.FieldOwner(fieldManager))
}
