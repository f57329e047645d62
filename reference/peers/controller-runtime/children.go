// The children of a Website: as objects to compare with cached ones, and as configurations to apply.
package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
)

func labels(site *Website) map[string]string {
	return map[string]string{"app": "site", "site": site.Name}
}

func data(site *Website) map[string]string {
	return map[string]string{"index.html": "served by " + site.Spec.Image}
}

func deployment(site *Website) *appsv1.Deployment {
	container := corev1.Container{
		Name:  "web",
		Image: site.Spec.Image,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		Env:   []corev1.EnvVar{{Name: "SITE", Value: site.Name}},
	}
	if site.Spec.Secret != "" {
		reference := corev1.LocalObjectReference{Name: site.Spec.Secret}
		container.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: reference}}}
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace, Labels: labels(site)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &site.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels(site)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(site)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
			},
		},
	}
}

func service(site *Website) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace, Labels: labels(site)},
		Spec: corev1.ServiceSpec{
			Selector: labels(site),
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
}

func configMap(site *Website) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace, Labels: labels(site)},
		Data:       data(site),
	}
}

func owner(site *Website) *applymeta.OwnerReferenceApplyConfiguration {
	return applymeta.OwnerReference().WithAPIVersion(groupVersion.String()).WithKind("Website").
		WithName(site.Name).WithUID(site.UID).WithController(true).WithBlockOwnerDeletion(true)
}

func applyDeployment(site *Website) *applyapps.DeploymentApplyConfiguration {
	container := applycore.Container().WithName("web").WithImage(site.Spec.Image).
		WithPorts(applycore.ContainerPort().WithName("http").WithContainerPort(8080)).
		WithEnv(applycore.EnvVar().WithName("SITE").WithValue(site.Name))
	if site.Spec.Secret != "" {
		secret := applycore.SecretEnvSource().WithName(site.Spec.Secret)
		container.WithEnvFrom(applycore.EnvFromSource().WithSecretRef(secret))
	}
	template := applycore.PodTemplateSpec().WithLabels(labels(site)).
		WithSpec(applycore.PodSpec().WithContainers(container))
	return applyapps.Deployment(site.Name, site.Namespace).WithLabels(labels(site)).WithOwnerReferences(owner(site)).
		WithSpec(applyapps.DeploymentSpec().WithReplicas(site.Spec.Replicas).
			WithSelector(applymeta.LabelSelector().WithMatchLabels(labels(site))).WithTemplate(template))
}

func applyService(site *Website) *applycore.ServiceApplyConfiguration {
	return applycore.Service(site.Name, site.Namespace).WithLabels(labels(site)).WithOwnerReferences(owner(site)).
		WithSpec(applycore.ServiceSpec().WithSelector(labels(site)).
			WithPorts(applycore.ServicePort().WithName("http").WithPort(80).WithTargetPort(intstr.FromString("http"))))
}

func applyConfigMap(site *Website) *applycore.ConfigMapApplyConfiguration {
	return applycore.ConfigMap(site.Name, site.Namespace).WithLabels(labels(site)).WithOwnerReferences(owner(site)).
		WithData(data(site))
}
